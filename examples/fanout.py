"""Fan-out: every group of a queue gets every message once, at its own pace."""

import tempfile
from pathlib import Path

from embedq.broker.host import open_engine

with tempfile.TemporaryDirectory() as folder, open_engine(Path(folder) / "shop.db") as engine:
    orders = engine.queue("orders")
    shipping = engine.group(orders, "shipping")
    engine.put_many(orders, [b"teapot", b"kettle", b"cup"])

    # The first group of a queue starts at its beginning. A later one starts at the end, unless
    # it asks for what is still there.
    audit = engine.group(orders, "audit", start="beginning")
    visits = engine.group(orders, "visits")

    parcels = engine.claim(shipping, most=10)
    print("shipping got", [lease.message.body.decode() for lease in parcels])
    engine.ack(*parcels)

    # A message leaves the file when every group that waits for it has acknowledged it.
    print(f"{orders.stored} messages stored, {audit.waiting} waiting for audit")
    page = engine.claim(audit, most=2)
    print("audit got", [lease.message.body.decode() for lease in page])
    engine.ack(*page)
    print(f"{orders.stored} messages stored, {audit.waiting} waiting for audit")

    engine.put(orders, b"spoon")
    for group in (shipping, audit, visits):
        leases = engine.claim(group, most=10)
        print(group.name, "got", [lease.message.body.decode() for lease in leases])
        engine.ack(*leases)
    print(f"{orders.stored} messages stored")
