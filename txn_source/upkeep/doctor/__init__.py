"""``txnlog doctor``: looking at a log from outside, telling what is wrong with it, and mending what is safe to mend.

An examination changes nothing. What looks wrong is looked at once more, the database last: what went the ordinary way
meanwhile is no finding. A repair does what maintenance and garbage collection do anyway, and deletes no last copy.
"""
