"""Random inputs for property tests."""

from hypothesis import strategies as st

from skh2edl import Taxonomy


@st.composite
def taxonomies(draw, max_nodes=16):
    """A tree of any shape: pass-through nodes, leaves at any depth, names repeated in branches."""
    n_nodes = draw(st.integers(3, max_nodes))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, n_nodes))]
    if n_nodes - len(set(parents[1:])) < 2:
        parents[-1] = 0  # a single chain has nothing to decide
    siblings: dict[int, int] = {}
    names = ["root"]
    for parent in parents[1:]:
        siblings[parent] = siblings.get(parent, 0) + 1
        names.append(f"child {siblings[parent]}" if draw(st.booleans()) else f"node {len(names)}")
    return Taxonomy(names, parents)
