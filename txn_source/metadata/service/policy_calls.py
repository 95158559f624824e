"""The service's calls about policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.enums import POLICY_SOURCE
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import policies, policy_changes, root_changes, topics
from txn_source.metadata.store.connection import Connection
from txn_source.model.policies import OF_COPIES, Scope
from txn_source.model.topic_name import TopicName, parse_namespace


class PolicyCalls:
    """Calls about what is set for the broker, a namespace or a topic; ``configuration`` are the broker's policies."""

    def __init__(self, work: UnitOfWork, configuration: Mapping[str, Any]) -> None:
        self._work = work
        self._configuration = configuration

    def ChangePolicies(self, request: pb.ChangePoliciesRequest) -> pb.ChangePoliciesResponse:
        scope = _scope(request.scope)

        def change(connection: Connection) -> pb.ChangePoliciesResponse:
            policy_changes.change(connection, scope, dict(request.set), list(request.remove))
            if not OF_COPIES.isdisjoint((*request.set, *request.remove)):
                root_changes.check_policies(connection, scope, self._configuration)
            return pb.ChangePoliciesResponse()

        return self._work.once(request, pb.ChangePoliciesResponse, change)

    def GetPolicies(self, request: pb.GetPoliciesRequest) -> pb.GetPoliciesResponse:
        scope = _scope(request.scope)
        response = pb.GetPoliciesResponse()
        with self._work.read() as connection:
            for name, value in policies.set_in(connection, scope).items():
                response.set[name] = str(value)
            if scope.topic is None:
                if scope.namespace is None:
                    for name, value in self._configuration.items():
                        if name not in response.set:
                            response.set[name] = str(value)
                return response
            topic = topics.find(connection, scope.topic)
            in_force = policies.in_force(connection, topic.name, topic.topic_id, self._configuration)
        for name, policy in in_force.items():
            value = None if policy.value is None else str(policy.value)
            response.effective.add(name=name, value=value, source=POLICY_SOURCE.to_wire(policy.source))
        return response


def _scope(message: pb.PolicyScope) -> Scope:
    return Scope(
        TopicName.parse(message.topic) if message.HasField("topic") else None,
        parse_namespace(message.namespace) if message.HasField("namespace") else None,
    )
