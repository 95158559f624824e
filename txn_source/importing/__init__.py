"""Moving house: what others wrote becomes topics of this log, with its transactions as transactions."""

from txn_source.importing.import_topics import ImportedPart, ImportReport, import_topics

__all__ = ["ImportReport", "ImportedPart", "import_topics"]
