"""Where gunicorn starts and stops the broker: in each worker, once its application is loaded.

The application is imported in the hook. At the top of this file the master would import it, and
SIGHUP would go on with the old code.
"""

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

graceful_timeout = 30  # longer than the grace of the broker (20s) and five seconds


def post_worker_init(worker: Worker) -> None:
    """Start the consumers in a new worker."""
    from shop import broker

    broker.start()
    worker.broker = broker


def worker_exit(_server: Arbiter, worker: Worker) -> None:
    """Finish what is in work, and close the file. The master calls this, too, for the dead."""
    broker = getattr(worker, "broker", None)
    if broker is not None:
        broker.stop()
