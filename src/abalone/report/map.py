"""Two-dimensional maps of document embeddings."""

import numpy as np

COMPONENTS = 50  # what t-SNE is given: the rest is mostly noise, and slow
PERPLEXITY = 30.0  # neighbours that a document is kept close to
FEWEST = 5  # documents that neighbourhoods make sense for


def document_map(embeddings: np.ndarray) -> dict[str, np.ndarray]:
    """Places of documents by name of the layout, [n, 2] each, in the unit square.

    `pca` keeps large distances: the two directions of most variance. `tsne` keeps neighbourhoods, and is left out
    with fewer than five documents. Rows are scaled to unit length first, as the losses compare by cosine.
    The same embeddings give the same map.

    Args:
        embeddings: [n, h].
    """
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(lengths, np.finfo(np.float32).tiny)
    components = _principal_components(unit.astype(np.float64))
    maps = {"pca": _fitted(components[:, :2])}
    if len(embeddings) >= FEWEST:
        maps["tsne"] = _fitted(_lengthwise(_neighbourhoods(components)))
    return maps


def _principal_components(rows: np.ndarray) -> np.ndarray:
    """[n, at most 50], and two columns at least."""
    from sklearn.decomposition import PCA

    wanted = min(COMPONENTS, *rows.shape)
    # Coinciding documents have no direction of variance, which scikit-learn would divide by.
    if len(rows) < 2 or np.ptp(rows, axis=0).max() == 0:
        return np.zeros((len(rows), 2))
    # "full" is exact: the randomised solver would make the map depend on the machine.
    found: np.ndarray = PCA(wanted, svd_solver="full").fit_transform(rows)
    return np.pad(found, ((0, 0), (0, max(0, 2 - found.shape[1]))))


def _neighbourhoods(components: np.ndarray) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    documents = len(components)
    if np.ptp(components) == 0:
        return np.zeros((documents, 2))
    layout = TSNE(perplexity=min(PERPLEXITY, (documents - 1) / 3), init="pca", random_state=0)
    # One thread: its small steps lose more to waiting for each other than they gain, and sums keep their order.
    with threadpool_limits(1):
        places: np.ndarray = layout.fit_transform(components.astype(np.float32))
    return places


def _lengthwise(places: np.ndarray) -> np.ndarray:
    """Turned so that the map is wider than tall, as screens are: which way is up means nothing to t-SNE."""
    centred = places - places.mean(axis=0)
    _, turn = np.linalg.eigh(centred.T @ centred)
    turned: np.ndarray = centred @ (turn[:, ::-1] * np.sign(turn[np.abs(turn).argmax(axis=0), [0, 1]])[::-1])
    return turned


def _fitted(places: np.ndarray) -> np.ndarray:
    """Into the unit square, scaled alike in both directions, centred."""
    low, high = places.min(axis=0), places.max(axis=0)
    extent = max(float((high - low).max()), np.finfo(np.float64).tiny)
    square: np.ndarray = (places - (low + high) / 2) / extent + 0.5
    return square
