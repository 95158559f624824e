"""``python -m txn_source.cli`` is the command ``txnlog``."""

from txn_source.cli.app import main

main()
