"""Following what a program does into the service: ids of requests, which its log and its audit have.

```python
with txn_source.tracing.request_id("nightly-42"):
    log.delete_topic("orders")
```
"""

from __future__ import annotations

from txn_source.observing.request_ids import request_id

__all__ = ["request_id"]
