"""What Prometheus is told."""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("abalone_requests", "Requests answered.", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "abalone_request_seconds", "From a request's headers to its last byte.", ["path"], buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.batch_texts = Histogram(
            "abalone_batch_texts", "Texts that went through the model together.", buckets=TEXTS, registry=registry
        )
        self.batch_seconds = Histogram(
            "abalone_batch_seconds", "Time the model took for a batch.", buckets=SECONDS, registry=registry
        )
        self.in_flight = Gauge("abalone_requests_in_flight", "Requests that are being answered.", registry=registry)
        self.waiting = Gauge("abalone_waiting_texts", "Texts that wait for the model.", registry=registry)

    def observe_batch(self, texts: int, seconds: float) -> None:
        """Count one batch."""
        self.batch_texts.observe(texts)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)
