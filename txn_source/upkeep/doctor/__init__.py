"""``txnlog doctor``: looking at a log from outside, and telling what is wrong with it and what to type about it.

An examination changes nothing. What looks wrong is looked at once more, the database last: what went the ordinary way
meanwhile is no finding.
"""
