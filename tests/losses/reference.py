"""The losses once more, loop by loop in Python floats, written from the paper and from nothing in `src/`.

Labels are lists of sets, vectors are lists of floats. Slow, and meant to be checked by eye.
"""

import math

Vector = list[float]
Labels = list[set[int]]


def cosine(a: Vector, b: Vector) -> float:
    na, nb = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(x * x for x in b))
    if na == 0 or nb == 0:
        return 0.0
    return sum(x * y for x, y in zip(a, b, strict=True)) / (na * nb)


def distance(a: Vector, b: Vector) -> float:
    na, nb = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(x * x for x in b))
    return math.sqrt(sum((x / na - y / nb) ** 2 for x, y in zip(a, b, strict=True)))


def jaccard(a: set[int], b: set[int]) -> float:
    return len(a & b) / len(a | b) if a | b else 0.0


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))


def supcon(z: list[Vector], y: Labels, tau: float, queue=((), ())) -> float:
    refs, ref_labels = [*z, *queue[0]], [*y, *queue[1]]
    total = 0.0
    for i in range(len(z)):
        others = [k for k in range(len(refs)) if k != i]
        positives = [k for k in others if ref_labels[k] == y[i] and y[i]]
        if not positives:
            continue
        log_denominator = log_sum_exp([cosine(z[i], refs[k]) / tau for k in others])
        for k in positives:
            total -= (cosine(z[i], refs[k]) / tau - log_denominator) / len(positives)
    return total / len(z)


def base(z: list[Vector], y: Labels, tau: float, queue=((), ()), prototypes=()) -> float:
    refs = [*z, *queue[0], *prototypes]
    ref_labels = [*y, *queue[1], *({j} for j in range(len(prototypes)))]
    total = 0.0
    for i in range(len(z)):
        others = [k for k in range(len(refs)) if k != i]
        normaliser = sum(jaccard(y[i], ref_labels[k]) for k in others)
        if normaliser == 0:
            continue
        log_denominator = log_sum_exp([cosine(z[i], refs[k]) / tau for k in others])
        for k in others:
            weight = jaccard(y[i], ref_labels[k]) / normaliser
            total -= weight * (cosine(z[i], refs[k]) / tau - log_denominator)
    return total / len(z)


def msc(z: list[Vector], y: Labels, tau: float, beta: float, queue=((), ()), prototypes=()) -> float:
    instances, instance_labels = [*z, *queue[0]], [*y, *queue[1]]
    total = 0.0
    for i in range(len(z)):
        others = [k for k in range(len(instances)) if k != i]
        terms = [math.log(beta) + cosine(z[i], instances[k]) / tau for k in others]
        terms += [cosine(z[i], c) / tau for c in prototypes]
        if not terms:
            continue
        log_denominator = log_sum_exp(terms)
        for j in y[i]:
            # (f, similarity) of P(j, i) ∪ {c_j}
            positives = [
                (1 / len(y[i] | instance_labels[k]), cosine(z[i], instances[k]))
                for k in others
                if j in instance_labels[k]
            ]
            if prototypes:
                positives.append((1.0, cosine(z[i], prototypes[j])))
            normaliser = sum(f for f, _ in positives)
            for f, similarity in positives:
                total -= f / normaliser / len(y[i]) * (similarity / tau - log_denominator)
    return total / len(z)


def jscl(z: list[Vector], y: Labels, tau: float) -> float:
    n = len(z)
    total = 0.0
    for i in range(n):
        others = [k for k in range(n) if k != i]
        if not others:
            continue
        log_denominator = log_sum_exp([cosine(z[i], z[k]) / tau for k in others])
        for k in others:
            if y[i] & y[k]:
                total -= math.log(jaccard(y[i], y[k])) + cosine(z[i], z[k]) / tau - log_denominator
    return total / n**2


def con(z: list[Vector], y: Labels, tau: float) -> float:
    total = 0.0
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i]
        normaliser = sum(len(y[i] & y[k]) for k in others)
        if normaliser == 0:
            continue
        log_denominator = log_sum_exp([-distance(z[i], z[k]) / tau for k in others])
        for k in others:
            total -= len(y[i] & y[k]) / normaliser * (-distance(z[i], z[k]) / tau - log_denominator)
    return total / len(z)


def mulcon(z: list[list[Vector]], y: Labels, tau: float) -> float:
    pairs = [(i, j) for i in range(len(y)) for j in sorted(y[i])]
    if not pairs:
        return 0.0
    total = 0.0
    for i, j in pairs:
        others = [pair for pair in pairs if pair != (i, j)]
        positives = [(k, t) for k, t in others if t == j]
        if not positives:
            continue
        log_denominator = log_sum_exp([cosine(z[i][j], z[k][t]) / tau for k, t in others])
        for k, t in positives:
            total -= (cosine(z[i][j], z[k][t]) / tau - log_denominator) / len(positives)
    return total / len(pairs)


def mulsupcon(z: list[Vector], y: Labels, tau: float, queue=((), ())) -> float:
    refs, ref_labels = [*z, *queue[0]], [*y, *queue[1]]
    total, pairs = 0.0, sum(map(len, y))
    for i in range(len(z)):
        others = [k for k in range(len(refs)) if k != i]
        for j in y[i]:
            positives = [k for k in others if j in ref_labels[k]]
            if not positives:
                continue
            log_denominator = log_sum_exp([cosine(z[i], refs[k]) / tau for k in others])
            for k in positives:
                total -= (cosine(z[i], refs[k]) / tau - log_denominator) / len(positives)
    return total / pairs if pairs else 0.0


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def bce(logits: list[Vector], y: Labels) -> float:
    return focal(logits, y, 0.0)


def focal(logits: list[Vector], y: Labels, gamma: float) -> float:
    return asymmetric(logits, y, gamma, gamma, 0.0)


def asymmetric(logits: list[Vector], y: Labels, gamma_pos: float, gamma_neg: float, margin: float) -> float:
    total = 0.0
    for row, labels in zip(logits, y, strict=True):
        for j, x in enumerate(row):
            if j in labels:
                total -= sigmoid(-x) ** gamma_pos * math.log(sigmoid(x))
            else:
                s = max(sigmoid(x) - margin, 0.0)
                total -= s**gamma_neg * math.log(1 - s) if s else 0.0
    return total / (len(logits) * len(logits[0]))


def zlpr(logits: list[Vector], y: Labels) -> float:
    total = 0.0
    for row, labels in zip(logits, y, strict=True):
        total += math.log(1 + sum(math.exp(x) for j, x in enumerate(row) if j not in labels))
        total += math.log(1 + sum(math.exp(-x) for j, x in enumerate(row) if j in labels))
    return total / len(logits)


def class_balanced(logits: list[Vector], y: Labels, counts: list[int], decay: float, gamma: float) -> float:
    total = 0.0
    for row, labels in zip(logits, y, strict=True):
        for j, x in enumerate(row):
            effective = sum(decay**k for k in range(max(counts[j], 1)))  # (1 − β^n) / (1 − β)
            p = sigmoid(x) if j in labels else sigmoid(-x)
            total -= (1 - p) ** gamma * math.log(p) / effective
    return total / (len(logits) * len(logits[0]))


def distribution_balanced(
    logits: list[Vector], y: Labels, counts: list[int], n: int, alpha, beta, mu, lam, kappa, gamma
) -> float:
    total = 0.0
    for row, labels in zip(logits, y, strict=True):
        drawn = sum(1 / max(counts[j], 1) for j in labels)
        for j, x in enumerate(row):
            ratio = 1 / max(counts[j], 1) / drawn if labels else math.inf
            weight = alpha + (sigmoid(beta * (ratio - mu)) if labels else 1.0)
            share = max(counts[j], 1) / n
            nu = kappa * math.log(1 / share - 1)
            if j in labels:
                p = sigmoid(x - nu)
                total -= weight * (1 - p) ** gamma * math.log(p)
            else:
                p = sigmoid(-lam * (x - nu))
                total -= weight * (1 - p) ** gamma * math.log(p) / lam
    return total / (len(logits) * len(logits[0]))
