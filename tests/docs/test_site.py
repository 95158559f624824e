"""The site: it is built without a warning, loads nothing from elsewhere, says what the code says, and answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import pytest
from lunr import get_default_builder, lunr
from lunr.stemmer import stemmer

from docs.tools import drawings, python_names, reference, repository_pages
from docs.tools.error_texts import CAUSES_AND_REMEDIES
from docs.tools.option_texts import DEFAULTS_AND_MEANINGS, FOREIGN_MEANINGS
from docs.tools.svg import DARK, LIGHT
from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.client.topic_stats import PartitionStats
from txn_source.http.metric_list import LABELS, METRICS
from txn_source.model.errors import ERROR_CLASSES
from txn_source.upkeep.doctor.codes import CODES

pytestmark = pytest.mark.xdist_group("docs")

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BUILT = "TXNLOG_SITE"
"""Names the folder of a site that was just built."""
TERMS = (
    "topic", "partition", "ledger", "entry", "marker", "position", "message id", "tier", "transaction", "bounds",
    "isolation level", "aborted set", "consistent cut", "subscription", "epoch",
)  # fmt: skip
QUESTIONS = {
    "how do I read only committed": "questions.html#how-do-i-read-only-committed-messages",
    "why does my stream stand still": "questions.html#why-does-my-stream-stand-still",
    "exactly once": "questions.html#how-do-i-write-exactly-once",
    "seek": "subscriptions.html#rewind-seek",
    "slow": "night.html#from-what-you-see-to-the-page",
    "disk full": "questions.html#where-did-my-disk-space-go",
    "restore": "questions.html#how-do-i-restore-a-backup",
    "restore backup": "questions.html#how-do-i-restore-a-backup",
    "s3 credentials": "tiers.html#s3",
    "from kafka": "kafka.html",
    "offload": "tiers.html#what-is-offloaded",
    "upgrade": "upgrade.html",
    "install": "quickstart.html#install",
    "DATA_SOURCE_NOT_FOUND": "questions.html#why-does-spark-say-data_source_not_found",
    "message size": "questions.html#how-big-can-a-message-be-or-a-transaction-size-limits",
    "spark-submit": "questions.html#how-do-i-run-it-with-the-pyspark-shell-spark-submit-or-a-notebook",
    "jupyter notebook": "questions.html#how-do-i-run-it-with-the-pyspark-shell-spark-submit-or-a-notebook",
    "java not found": "questions.html#what-if-java-is-not-found",
    "cast string": "questions.html#how-do-i-see-keys-and-values-as-text-not-as-bytes",
    "pandas": "questions.html#how-do-i-read-with-pandas-polars-or-duckdb",
    "read from timestamp": "questions.html#how-do-i-read-from-a-timestamp-on",
    "duplicate messages": "questions.html#why-do-messages-come-twice-duplicates",
    "ErrorIfExists": "questions.html#why-is-overwrite-refused-or-the-mode-errorifexists",
    "change isolation level": "questions.html#how-do-i-change-the-isolation-level-of-a-subscription",
    "consumer lag": "questions.html#how-far-behind-is-a-stream-or-subscription-lag",
    "other machine": "questions.html#how-do-i-use-a-log-from-another-machine",
    "delete topic": "questions.html#how-do-i-delete-a-topic-or-messages",
    "compaction": "questions.html#how-do-i-delete-a-topic-or-messages",
    "database is lost": "questions.html#what-if-the-database-a-disk-or-a-file-is-gone-or-lost",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: every link and anchor is checked, and every warning is an error."""
    if BUILT in os.environ:
        return ROOT / os.environ[BUILT]
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert run.returncode == 0, run.stderr
    return folder


class _Loaded(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video") and given.get("src"):
            self.addresses.append(str(given["src"]))
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect", "preload", "modulepreload"):
            self.addresses.append(str(given["href"]))


@pytest.mark.long
def test_pages_load_nothing_from_elsewhere(built: Path) -> None:
    """Look at what each page and style sheet makes a browser load: files of the site, and nothing else."""
    pages = list(built.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.addresses
        assert [address for address in loaded.addresses if re.match(r"\w+:|//", address)] == [], page
    for sheet in built.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")) == []


@pytest.mark.long
def test_pages_show_nothing_that_is_for_tests(built: Path) -> None:
    """Comments for tests are left out, and drawings are in the pages, without the colours of a file."""
    for page in built.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<!-- (setup|check|fresh|not run|printed)", text), page
    concepts = (built / "concepts.html").read_text(encoding="utf-8")
    assert concepts.count('<svg xmlns="http://www.w3.org/2000/svg" class="drawing"') == len(drawings.DRAWINGS)
    assert "prefers-color-scheme: dark) { svg" not in concepts
    internals = (built / "internals.html").read_text(encoding="utf-8")
    assert internals.count('class="drawing"') == 1
    assert "mermaid" not in internals


@pytest.fixture(scope="module")
def search(built: Path) -> Callable[[str], str]:
    """Return where the first document lies that the page finds in a browser: the same index, boosts and stop words, no
    stems; words may be beginnings.
    """
    found = json.loads((built / "search" / "search_index.json").read_text(encoding="utf-8"))
    documents = [
        (
            {"at": each["location"], "title": each["title"], "text": re.sub("<[^>]+>", " ", each["text"])},
            {"boost": each.get("boost", 1)},
        )
        for each in found["docs"]
    ]
    boosts = [{"field_name": name, "boost": found["config"]["fields"][name]["boost"]} for name in ("title", "text")]
    builder = get_default_builder()
    builder.pipeline.remove(stemmer)
    builder.search_pipeline.remove(stemmer)
    index = lunr(ref="at", fields=boosts, documents=documents, builder=builder)
    return lambda question: str(index.search(" ".join(f"{word}*" for word in question.split()))[0]["ref"])


@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS)
def test_newcomers_search_finds_the_answer_first(search: Callable[[str], str], question: str) -> None:
    """The page groups what it finds by documents, so the first document counts, or its first section."""
    assert search(question) == QUESTIONS[question]


def test_words_are_defined_and_linked() -> None:
    """Each term has its place in the glossary, and the concepts lead there at least once."""
    glossary, concepts = ((DOCS / name).read_text(encoding="utf-8") for name in ("glossary.md", "concepts.md"))
    defined = {heading.lower() for heading in re.findall(r"^### (.+)$", glossary, re.MULTILINE)}
    linked = set(re.findall(r"\]\(glossary\.md#([\w-]+)\)", concepts))
    assert set(TERMS) - defined == set()
    wanted = {term.replace(" ", "-") for term in TERMS if term != "isolation level"}
    assert wanted - linked == set()


def test_every_option_has_its_text() -> None:
    """Compare the texts with the options that the code takes, in both directions."""
    assert {name for names in reference.option_kinds().values() for name in names} == set(DEFAULTS_AND_MEANINGS)
    assert {name for names in reference.foreign_kinds().values() for name in names} == set(FOREIGN_MEANINGS)
    assert set(reference.COLUMN_MEANINGS) == set(METADATA_COLUMNS)


def test_every_error_has_cause_and_remedy() -> None:
    """Compare the texts with the codes; each says a cause and what to do, in a sentence."""
    assert set(CAUSES_AND_REMEDIES) == set(ERROR_CLASSES)
    assert all(text.endswith(".") for texts in CAUSES_AND_REMEDIES.values() for text in texts)


def test_every_finding_has_cause_and_remedy() -> None:
    """Compare the page with the doctor's codes; each says a cause and what to do, in sentences."""
    page = reference.pages()["reference/findings.md"]
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == sorted(CODES)
    assert all(code.name == name for name, code in CODES.items())
    assert all(text.endswith(".") for code in CODES.values() for text in (code.cause, code.remedy))


def test_every_metric_has_its_place_and_each_alert_what_it_looks_at() -> None:
    """Compare the page with what is exported, in both directions: metrics, their labels, the alerts that use them."""
    assert sorted(metric.name for part in reference.metric_kinds().values() for metric in part) == sorted(METRICS)
    page = reference.pages()["reference/metrics.md"]
    assert re.findall(r"^\| `(txnlog_\w+)`", page, re.MULTILINE) == [
        metric.name for part in reference.metric_kinds().values() for metric in part
    ]
    assert {label for metric in METRICS.values() for label in metric.labels} == set(LABELS)
    alerts = re.findall(r"- alert: (\w+)", reference.ALERTS.read_text(encoding="utf-8"))
    assert {alert for used in reference.alerts_by_metric().values() for alert in used} == set(alerts)


def test_what_one_gets_back_is_on_the_python_page() -> None:
    """Each class that a public call returns has its place, with its fields, and nothing that is for inner use."""
    page = reference.pages()["reference/python.md"]
    headings = re.findall(r"^## ([\w.]+)$", page, re.MULTILINE)
    assert headings == [*python_names.named(), *python_names.given()]
    assert {"PartitionStats", "LedgerStats", "SubscriptionPartition", "RepairReport", "ReadOnlyLog"} <= set(headings)
    assert not {inner.__name__ for inner in python_names.INNER} & set(headings)
    stats = page.partition("## PartitionStats\n")[2].partition("\n## ")[0]
    assert all(f"\n{field.name}: " in stats for field in fields(PartitionStats))
    assert " object at 0x" not in page


def test_drawings_show_what_logs_say() -> None:
    """Draw them again: each must be what lies in the folder (``make drawings`` writes them)."""
    drawn = dict(drawings.drawn())
    assert drawn == {name: (drawings.PICTURES / f"{name}.svg").read_text(encoding="utf-8") for name in drawn}
    assert {path.stem for path in drawings.PICTURES.glob("*.svg")} == set(drawn)


def test_pages_have_the_colours_of_drawings() -> None:
    """The style sheet of the site gives a drawing the colours that its file has."""
    sheet = (DOCS / "assets" / "site.css").read_text(encoding="utf-8")
    light, _, dark = sheet.partition('[data-md-color-scheme="slate"]')
    for part, colours in ((light, LIGHT), (dark, DARK)):
        assert dict(re.findall(r"--(\w+): (#\w+);", part)) == colours


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    """README is what one reads first; everything else is a page of the documentation."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 165
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_documents_of_the_repository_keep_their_links() -> None:
    """What is a page of the site is linked there; what isn't is named without a link."""
    text = "[a](docs/tiers.md#fallback) [b](ARCHITECTURE.md) [c](benchmarks/RESULTS.md) [d](https://example.org/x)"
    assert repository_pages.site_text(text) == "[a](tiers.md#fallback) [b](internals.md) [c] [d](https://example.org/x)"
