"""The losses of every method in plain Python: loops, dicts and scipy, one sample at a time."""

import math

from scipy.special import digamma, gammaln, polygamma


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


EVIDENCE = {
    "softplus": softplus,
    "relu": lambda x: max(x, 0.0),
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


def off_target_kl(alpha, prior, target):
    kept = [prior[k] if k == target else one for k, one in enumerate(alpha)]
    return dirichlet_kl(kept, prior)


def path_to(tree, node):
    path = []
    while tree.parents[node] >= 0:
        path.insert(0, tree.names[node])
        node = tree.parents[node]
    return tuple(path)


def decisions_to(tree, node):
    """Yield (branching position, [columns], position of the child) on the path to a node."""
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
    kl_per_child=True,
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
        kl = off_target_kl(alpha, prior, target) / (len(alpha) if kl_per_child else 1)
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


def softmax(logits):
    highest = max(logits)
    values = [math.exp(logit - highest) for logit in logits]
    return [value / sum(values) for value in values]


def leaves_of(tree, node):
    """Positions of the leaves whose path begins with the node's."""
    path = path_to(tree, node)
    return [
        position
        for position, leaf in enumerate(tree.leaf_nodes.tolist())
        if path_to(tree, leaf)[: len(path)] == path
    ]


def merged(values, inside):
    """The sum over a set of leaves first, then the leaves outside it."""
    return [
        sum(values[k] for k in inside),
        *(value for k, value in enumerate(values) if k not in inside),
    ]


def flat_cells(evidence, prior, inside, partial_labels):
    """Evidence, prior and target of the cells that a label distinguishes."""
    if partial_labels == "marginal":
        evidence, prior = merged(evidence, inside), merged(prior, inside)
        return evidence, prior, [float(k == 0) for k in range(len(evidence))]
    return evidence, prior, [(k in inside) / len(inside) for k in range(len(evidence))]


def outside_kl(evidence, prior, inside):
    kept = [prior[k] if k in inside else prior[k] + evidence[k] for k in range(len(evidence))]
    return dirichlet_kl(kept, prior)


def soft_risk(name, alpha, target):
    """Sensoy's risks for a target distribution."""
    total = sum(alpha)
    if name == "squared":
        return sum(
            (y - one / total) ** 2 + one / total * (1 - one / total) / (total + 1)
            for one, y in zip(alpha, target, strict=True)
        )
    if name == "none":
        return 0.0
    function = {"log": math.log, "digamma": digamma}[name]
    return sum(y * (function(total) - function(one)) for one, y in zip(alpha, target, strict=True))


def henn_parts(logits, groups):
    """Alpha of each leaf and c of each group from the logits."""
    n_leaves = sum(map(len, groups))
    alpha = [softplus(logit) + 1 for logit in logits[:n_leaves]]
    extra = [
        softplus(logit) if len(group) > 1 else 0.0
        for logit, group in zip(logits[n_leaves:], groups, strict=True)
    ]
    return alpha, extra


def henn_kl(alpha, extra, groups):
    """Divergence of the grouped Dirichlet from (1, 0) through its entropy."""

    def log_beta(values):
        return sum(map(gammaln, values)) - gammaln(sum(values))

    within = [sum(alpha[k] for k in group) for group in groups]
    beta = [one + other for one, other in zip(within, extra, strict=True)]
    beta_0, n_leaves = sum(beta), len(alpha)
    log_c = sum(log_beta([alpha[k] for k in group]) for group in groups) + log_beta(beta)
    entropy = log_c - sum((one - 1) * digamma(one) for one in alpha)
    entropy += (sum(alpha) - n_leaves) * digamma(beta_0)
    for j, group in enumerate(groups):
        for k in group:
            entropy -= (alpha[k] - 1) * (digamma(beta[j]) - digamma(within[j]))
        entropy += extra[j] * (digamma(beta_0) - digamma(beta[j]))
    prior_log_c = sum(log_beta([1.0] * len(group)) for group in groups)
    prior_log_c += log_beta([float(len(group)) for group in groups])
    return prior_log_c - entropy


def henn_probability(alpha, extra, groups):
    within = [sum(alpha[k] for k in group) for group in groups]
    beta = [one + other for one, other in zip(within, extra, strict=True)]
    return [
        alpha[k] / within[j] * beta[j] / sum(beta) for j, group in enumerate(groups) for k in group
    ]


def hxe_loss(tree, probability, node, depth_decay):
    loss = 0.0
    path = path_to(tree, node)
    nodes = {path_to(tree, other): other for other in range(tree.n_nodes)}
    for position, _, _ in decisions_to(tree, node):
        parent = tree.branching[position]
        child = path[: len(parent) + 1]
        given = sum(probability[k] for k in leaves_of(tree, nodes[child]))
        given /= sum(probability[k] for k in leaves_of(tree, nodes[parent]))
        loss -= math.exp(-depth_decay * len(parent)) * math.log(given)
    return loss


def kinship(tree, node, sharpness):
    """Soft label: q over the leaves from the height of the lowest common ancestor."""
    while tree.n_children[node] == 1:
        node = int(tree.first_child[node])
    heights = [
        int(tree.heights[tree.lowest_common_ancestor([node], [leaf])[0]])
        for leaf in tree.leaf_nodes.tolist()
    ]
    first_decision = max(
        int(height) for height, n in zip(tree.heights, tree.n_children, strict=True) if n > 1
    )
    values = [math.exp(-sharpness * height / first_decision) for height in heights]
    return [value / sum(values) for value in values]
