"""Policies as they are in force, and where each comes from. They are shown, not changed."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from txn_source.console.viewer import Viewer
from txn_source.model.errors import InvalidArgumentError, NamespaceNotFoundError, PermissionDeniedError
from txn_source.model.policies import DEFAULT, POLICIES, SOURCES, Scope
from txn_source.model.topic_name import TopicName, parse_namespace

_SET_AT = {
    "topic": "Set for the topic.",
    "namespace": "Set for the namespace.",
    "broker": "Set for the broker.",
    DEFAULT: "Set nowhere: the default.",
}


def policies(request: Request, viewer: Viewer) -> Any:
    """List the policies of a topic, of a namespace, or of the broker, with what is set at each level."""
    topic, namespace = request.query_params.get("topic"), request.query_params.get("namespace")
    if topic and namespace:
        raise InvalidArgumentError("Both a topic and a namespace are named.", "Name one, or neither for the broker.")
    scopes: dict[str, Scope] = {"broker": Scope()}
    if topic:
        name = TopicName.parse(topic)
        scopes = {"topic": Scope(name), "namespace": Scope(None, f"{name.tenant}/{name.namespace}"), **scopes}
    elif namespace:
        scopes = {"namespace": Scope(None, parse_namespace(namespace)), **scopes}
    layers = {level: _set_in(scope, viewer, must=n == 0) for n, (level, scope) in enumerate(scopes.items())}
    in_force = viewer.access.metadata.policies_in_force(TopicName.parse(topic)) if topic else None
    rows = []
    for name_, policy in POLICIES.items():
        given = {level: (layers.get(level) or {}).get(name_) for level in SOURCES}
        source = next((level for level in SOURCES if given[level] is not None), DEFAULT)
        value = policy.default if source == DEFAULT else given[source]
        if in_force is not None and name_ in in_force:
            value, source = in_force[name_].value, in_force[name_].source
        rows.append(
            {
                "name": name_,
                "value": _shown(value),
                "unit": _unit(name_),
                "source": source,
                "origin": _SET_AT[source],
                "setting": policy.setting,
                "doc": policy.meaning,
                "set": {level: _shown(given[level]) for level in SOURCES},
                "default": _shown(policy.default),
            }
        )
    return {"now_ms": viewer.service.now_ms(), "total": len(rows), "rows": rows}


def _set_in(scope: Scope, viewer: Viewer, *, must: bool) -> dict[str, Any] | None:
    """Return what is set at a level; None if the visitor may not know, unless it is what was asked for."""
    try:
        return viewer.access.metadata.get_policies(scope)
    except (PermissionDeniedError, NamespaceNotFoundError):
        if must:
            raise
        return None


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else str(value)


def _unit(name: str) -> str | None:
    if name.endswith(("_age", "_lag")):
        return "s"
    return "bytes" if name.endswith("_bytes") else None
