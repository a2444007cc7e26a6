"""The losses of every method in plain Python: loops, dicts and scipy, one sample at a time."""

import math

from scipy.special import digamma, gammaln, polygamma


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


EVIDENCE = {
    "softplus": softplus,
    "softplus_squared": lambda x: softplus(x) ** 2,
    "exp": lambda x: math.exp(min(x, 20.0)),
}


def dirichlet_kl(alpha, prior):
    """KL(Dir(alpha) || Dir(prior)) as textbooks write it."""
    total, prior_total = sum(alpha), sum(prior)
    value = gammaln(total) - gammaln(prior_total)
    for one, other in zip(alpha, prior, strict=True):
        value += gammaln(other) - gammaln(one)
        value += (one - other) * (digamma(one) - digamma(total))
    return value


def squared_risk(alpha, target):
    total = sum(alpha)
    value = 0.0
    for k, one in enumerate(alpha):
        p = one / total
        value += (float(k == target) - p) ** 2 + p * (1 - p) / (total + 1)
    return value


def log_risk(alpha, target):
    return math.log(sum(alpha)) - math.log(alpha[target])


def digamma_risk(alpha, target):
    return digamma(sum(alpha)) - digamma(alpha[target])


RISKS = {
    "squared": squared_risk,
    "log": log_risk,
    "digamma": digamma_risk,
    "none": lambda alpha, target: 0.0,
}


def trigamma(x):
    return polygamma(1, x)


def misleading_kl(alpha, prior, target):
    kept = [prior[k] if k == target else one for k, one in enumerate(alpha)]
    return dirichlet_kl(kept, prior)


def path_to(tree, node):
    path = []
    while tree.parents[node] >= 0:
        path.insert(0, tree.names[node])
        node = tree.parents[node]
    return tuple(path)


def decisions_to(tree, node):
    """Yield (branching position, [columns], position of the child) on the way to a node."""
    columns = {}
    for column, (parent, child) in enumerate(tree.decisions):
        columns.setdefault(parent, {})[child] = column
    positions = {path: position for position, path in enumerate(tree.branching)}
    path = path_to(tree, node)
    for depth in range(len(path)):
        options = columns.get(path[:depth])
        if options is not None:
            children = list(options)
            yield (
                positions[path[:depth]],
                [options[child] for child in children],
                children.index(path[: depth + 1]),
            )


def opinion_tree_loss(
    tree,
    logits,
    node,
    base_rate,
    prior_weight,
    *,
    evidence="softplus",
    evidence_scale=1.0,
    risk="squared",
    kl_weight=0.0,
    kl_per_child=False,
    leaf_weight=0.0,
    consistency_weight=0.0,
    depth_weights=None,
):
    """Objective of one sample whose label is `node`; `kl_weight` is the annealed one."""
    loss, previous = 0.0, None
    for position, columns, target in decisions_to(tree, node):
        weight = prior_weight[position]
        prior = [weight * base_rate[column] for column in columns]
        alpha = [
            evidence_scale * EVIDENCE[evidence](logits[column]) + rest
            for column, rest in zip(columns, prior, strict=True)
        ]
        depth = len(tree.branching[position])
        kl = misleading_kl(alpha, prior, target) / (len(alpha) if kl_per_child else 1)
        own = RISKS[risk](alpha, target) + kl_weight * kl
        loss += own * (1.0 if depth_weights is None else depth_weights[depth])
        loss += leaf_weight * log_risk(alpha, target)
        vacuity, probability = weight / sum(alpha), alpha[target] / sum(alpha)
        if previous is not None:
            loss += consistency_weight * previous[1] * max(0.0, vacuity - previous[0])
        previous = vacuity, probability
    return loss


def softmax_tree_loss(tree, logits, node):
    loss = 0.0
    for _, columns, target in decisions_to(tree, node):
        loss += math.log(sum(math.exp(logits[column]) for column in columns))
        loss -= logits[columns[target]]
    return loss
