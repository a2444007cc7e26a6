"""Time the rendering of glyphs: python tests/performance/bench_glyphs.py."""

import time

from skh2edl.datasets import make_glyphs

N_IMAGES, LIMIT = 10_000, 20.0


def main() -> None:
    """Render once and compare the processor time with the limit."""
    started = time.process_time()
    make_glyphs(N_IMAGES, random_state=0)
    seconds = time.process_time() - started
    print(f"{N_IMAGES:,} glyphs: {seconds:.1f} s of processor time (limit {LIMIT:.0f})")
    if seconds > LIMIT:
        raise SystemExit("over the limit")


if __name__ == "__main__":
    main()
