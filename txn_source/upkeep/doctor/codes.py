"""What can be found: each kind of finding with its usual cause, and what to do about it.

A remedy names what it is about in braces, ``{topic}``; those who print it for a finding put the finding's own in.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from txn_source.storage.root import FORMAT_VERSION


class Severity(enum.StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Messages can't be read, or will be lost, or the log can't do its work."""
    WARNING = "warning"
    """Somebody should do something, and nothing is lost yet."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding."""

    name: str
    severity: Severity
    cause: str
    remedy: str

    def remedy_for(self, operands: Mapping[str, object]) -> str:
        """Return what to do about a finding with these operands; one that isn't there stays as its name.

        Inside of a command they are quoted for a shell, which takes ``(0,7)`` for something else.
        """
        texts_and_commands = self.remedy.split("`")
        for number, text in enumerate(texts_and_commands):
            shown = shlex.quote if number % 2 else str

            def operand(found: re.Match[str], shown: Callable[[str], str] = shown) -> str:
                return shown(str(operands.get(found[1], found[1].upper())))

            texts_and_commands[number] = re.sub(r"{(\w+)}", operand, text)
        return "`".join(texts_and_commands)


_E, _W, _N = Severity
_RESTORE = "Restore the file from a backup"
_MAINTAIN = "Run `txnlog maintain`"
_AGAIN = (
    "Where the hot copy is there, `txnlog topics delete-offloaded {topic} --ledger {ledger}` gives the object up, and"
    " `txnlog topics offload {topic}` makes it anew."
)
_DROP = "Where an object has the ledger, too, `txnlog topics delete-hot {topic} --ledger {ledger}` drops the hot copy."

CODES: dict[str, Code] = {
    code.name: code
    for code in (
        # The log and its places
        Code("marker-damaged", _E, "txnlog.json in the root was removed or overwritten.",
             f"Write it anew: where metadata.db lies in the root it is `{{\"format_version\": {FORMAT_VERSION}}}`, else"
             " any copy of the root has it. Without it no release opens the folder."),
        Code("database-missing", _E, "metadata.db was deleted or moved, or the root is not mounted whole.",
             "Put the file back, or make it of the newest snapshot: `txnlog recover`."),
        Code("log-version", _E, "A newer release has upgraded the log.", "Use that release, or restore a backup."),
        Code("schema-old", _W, "The log was last opened by an older release.",
             "Let this release open it: any command that writes upgrades the tables, as `txnlog maintain`."),
        Code("configuration-damaged", _E, "broker.conf has a setting or a value that can't be.",
             "Mend the line that is named; until then no process opens the log."),
        Code("root-unreachable", _E, "A disk or a share is not mounted, a store is down, or credentials are missing.",
             "Bring the place back; of a root for copies whose disk is lost, `txnlog roots add {root} {uri}` makes it"
             " anew and `txnlog maintain` fills it."),
        Code("root-of-another-log", _E, "The place of a root was given to another log, or its marker was overwritten.",
             "Bring back the root's own place; or set hot_copies to other roots wherever it names this one, run"
             " `txnlog maintain`, and remove the root with `txnlog roots remove {root}`."),
        Code("metadata-twice", _W, "A log's metadata.db was put back after its metadata had moved to PostgreSQL.",
             "Move the file {path} away: the log's metadata lies in PostgreSQL, and nothing reads it."),
        Code("log-twice", _E, "A copy of the log, such as a restored backup, lives beside it and shares its places.",
             "Give one of the two logs an offload_uri and roots of its own, and let neither of them delete there."),
        Code("disk-low", _W, "The disk that the log writes to is nearly full.",
             "Free space, or let the log trim and offload: `txnlog topics set-policies`; when it is full, producers are"
             " refused."),
        Code("not-writable", _W, "The folder belongs to another user, or is mounted read-only.",
             "Check the owner and the mode of {path}; whoever produces or serves writes there."),
        Code("not-readable", _E, "The folder or the file belongs to another user.",
             "Check the owner and the mode of {path}, of the folders above it, or the credentials of its store."),
        # The database
        Code("database-damaged", _E, "The disk, or something that wrote to the file, has changed metadata.db.",
             "Stop what uses the log, and restore it from a backup; SQLite's `.recover` may save what is newer."),
        Code("database-references", _E, "The database was changed by hand, or is damaged.",
             "Restore the log from a backup."),
        Code("database-totals", _E, "The database was changed by hand, or is damaged.",
             "Restore the log from a backup; what the totals tell (sizes, backlogs, counts) is wrong until then."),
        Code("database-pages", _E, "The database was changed by hand, or is damaged.",
             "Restore the log from a backup; readers of {topic} read the page, and may miss messages."),
        Code("database-transactions", _E, "The database was changed by hand, or is damaged.",
             "Restore the log from a backup; what readers see of these transactions may be wrong."),
        Code("database-wal-large", _W, "A reader that never ends keeps SQLite from merging its write-ahead log.",
             "Find the process that has the log open for long, and end it; the next write merges the log."),
        Code("database-behind", _E, "An old metadata.db was put in the place of a newer one.",
             "Put the newer metadata.db back before anything is written; what it doesn't know is no garbage."),
        # Hot segments
        Code("segment-missing", _E, "The file was deleted, or the disk that had it is lost.",
             f"{_RESTORE}; the other messages of {{topic}} can be read by position. {_DROP}"),
        Code("segment-short", _E, "The disk lost the end of the file, as after a power cut with a disk that lies.",
             f"{_RESTORE}; the other messages of {{topic}} can be read by position. {_DROP}"),
        Code("segment-damaged", _E, "The disk, or something that wrote to the file, has changed bytes.",
             f"{_RESTORE}. {_DROP}"),
        Code("copy-missing", _W, "A root for copies lost the file.", f"{_MAINTAIN}, which copies it again."),
        Code("copy-damaged", _W, "The disk of a root has changed bytes.",
             "Run `txnlog maintain --verify`, which writes the copy anew from a sound one."),
        Code("copies-few", _W, "A root was away when it was written, or the policy hot_copies names more roots now.",
             f"{_MAINTAIN}, which copies what roots lack."),
        Code("entries-short", _W, "Roots were away while a producer wrote: nobody reads these entries yet.",
             f"Bring the roots back; then {_MAINTAIN[0].lower()}{_MAINTAIN[1:]}."),
        Code("segment-unreferenced", _W, "A producer or a job was killed before it registered what it had written.",
             "Run `txnlog gc`."),
        Code("file-unknown", _W, "The log was put back to an earlier moment, or an earlier release's job was killed.",
             "Look at them with `txnlog quarantine list`; `txnlog quarantine empty` deletes them. Nothing else does."),
        Code("file-strange", _N, "Something else than txnlog has put a file among the segments.",
             "Move it away; txnlog never touches it."),
        # Tiered objects
        Code("object-missing", _E, "The object was deleted, or lifecycle rules of the store removed it.",
             f"Restore the object. {_AGAIN}"),
        Code("object-damaged", _E, "The store, or something that wrote to the object, has changed it.",
             f"Restore the object. {_AGAIN}"),
        Code("object-differs", _E, "The database or the object is of another time, as after half a restore.",
             "Restore the database and the objects of one moment."),
        Code("doomed-old", _W, "Nobody maintains the log, or its files can't be deleted where that is tried.",
             f"{_MAINTAIN}, and see what it says; `txnlog serve` does so every minute."),
        Code("offload-stuck", _W, "Whoever offloaded was killed; nothing was lost.",
             f"{_MAINTAIN}: the object is given up and deleted, and the ledger is offloaded anew."),
        Code("offload-target-unreachable", _E, "The policy offload_uri names a place that is away, or refuses.",
             "Check the place, the credentials, and the policy: `txnlog topics get-policies {topic}`."),
        # Transactions
        Code("transaction-hangs", _W, "Its producer hangs, is slow, or was killed.",
             "Look at it with `txnlog transactions show {txn}`, and end it with `txnlog transactions abort {txn}`;"
             " at its timeout it is aborted."),
        Code("transaction-fenced", _W, "The database was changed by hand: a takeover aborts what is open.",
             "End it: `txnlog transactions abort {txn}`."),
        # Subscriptions
        Code("subscription-keeps-data", _W, "No consumer is connected, and retention waits for the subscription.",
             "Let somebody read it; or seek it, `txnlog subscriptions seek {topic} {subscription} --to latest`; or"
             " `txnlog subscriptions delete {topic} {subscription}`."),
        Code("subscription-beyond-end", _E, "The log was restored from an older backup than the subscription's reader.",
             "Seek it: `txnlog subscriptions seek {topic} {subscription} --to latest`."),
        Code("deliveries-orphaned", _E, "The database was changed by hand: messages wait for a consumer that is gone.",
             "Seek the subscription to where it stands, which hands all out again:"
             " `txnlog subscriptions seek {topic} {subscription} --to {at}`."),
        # Policies
        Code("policy-trims-first", _W, "retention_age or retention_bytes is below the threshold of the offload.",
             "Offload earlier, or retain more: `txnlog topics set-policies {topic}`."),
        Code("policy-copies", _E, "hot_copies and acknowledge_copies were set at different levels, or a root is gone.",
             "Set both for the topic, such as `txnlog topics set-policies {topic} --hot-copies main"
             " --acknowledge-copies 1`; producers are refused until then."),
        # Clocks
        Code("clock-ahead", _W, "A clock was ahead when messages were published; later ones get the same time.",
             "Set the clocks by NTP; publish times begin anew by themselves once the clock is seen to have been"
             " more than an hour ahead."),
        Code("clock-differs", _W, "This machine's clock and the service's differ.", "Set both by NTP."),
        # The examination
        Code("check-failed", _E, "The log can't be read where the check looks, or it has a fault nobody foresaw.",
             "Mend what the text says, and run `txnlog doctor` again."),
    )
}  # fmt: skip
"""All kinds of findings by name."""
