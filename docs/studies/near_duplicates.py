"""How well look-alikes are told: ``python docs/studies/near_duplicates.py ASSETS``.

Prints, for photographs and for objects drawn on white, how many copies are found (saved anew,
scaled, brightened) and how many different images are called the same, and what reading costs.
Pairs of whole data sets are named, to be looked at. ASSETS is the folder with
``cub_birds`` and ``grocery_store``.
"""

import argparse
import io
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance

from skh2edl.datasets import make_insects
from skh2edl.images import image_source
from skh2edl.images.near_duplicates import SAME_LOOK, look_vectors, nearest_look

N_IMAGES = 600
SIDE = 224


def saved(image, quality=85):
    """Return an image as JPEG gives it back."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(io.BytesIO(file.getvalue())).convert("RGB")


COPIES = {
    "quality 60": lambda image: saved(image, 60),
    "half size": lambda image: saved(image.resize((image.width // 2, image.height // 2))),
    "1.5 times": lambda image: saved(image.resize((image.width * 3 // 2, image.height * 3 // 2))),
    "darker by 30 %": lambda image: saved(ImageEnhance.Brightness(image).enhance(0.7)),
    "brighter by 30 %": lambda image: saved(ImageEnhance.Brightness(image).enhance(1.3)),
}


def photographs(folder, rng):
    """Return some photographs of a folder."""
    files = sorted(folder.rglob("*.jpg"))
    chosen = rng.choice(len(files), min(N_IMAGES, len(files)), replace=False)
    return [Image.open(files[index]).convert("RGB") for index in chosen]


def shape_on_white(rng):
    """Draw a disc or triangle of random place, size and colour."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    radius = int(rng.integers(SIDE // 10, SIDE // 3))
    x, y = rng.integers(radius, SIDE - radius, 2).tolist()
    colour = tuple(rng.integers(0, 200, 3).tolist())
    if rng.random() < 0.5:
        ImageDraw.Draw(image).ellipse((x - radius, y - radius, x + radius, y + radius), colour)
    else:
        corners = [(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)]
        ImageDraw.Draw(image).polygon(corners, colour)
    return image


def bottle_on_white(rng):
    """Draw a bottle in the middle, of nearly the same shape, with a label of its own."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(image)
    half, top = int(rng.integers(28, 36)), int(rng.integers(60, 72))
    glass, label = (tuple(rng.integers(0, 200, 3).tolist()) for _ in range(2))
    draw.rectangle((100, 15, 124, top), glass)
    draw.rectangle((112 - half, top, 112 + half, 210), glass)
    draw.rectangle((112 - half, top + 30, 112 + half, 180), label)
    for line in range(top + 40, 170, 20):
        width = int(rng.integers(5, half))
        draw.rectangle((112 - width, line, 112 + width, line + 8), "white")
    return image


def insect_on_white(pixels):
    """Return a drawn insect whose background is white."""
    grey = np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.int16)
    edge = np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]]))
    return Image.fromarray(np.where(np.abs(grey - edge)[..., None] < 20, 255, pixels).astype("u1"))


def vectors_of(images):
    """Return the vectors of images in memory."""
    return look_vectors(image_source([np.asarray(image) for image in images]))


def print_copies(name, images):
    """Print how many copies are found, and how many other images are called the same."""
    vectors = vectors_of(images)
    cosine = nearest_look(vectors)[1]
    highest = -np.sort(-cosine)[:6:2]
    print(
        f"{name}: {len(images)} images, {(cosine >= SAME_LOOK).sum()} called the same as another; "
        f"highest cosines {', '.join(f'{value:.3f}' for value in highest)}"
    )
    for what, change in COPIES.items():
        found = (vectors_of([change(image) for image in images]) * vectors).sum(axis=1)
        print(f"  copies, {what}: {(found >= SAME_LOOK).mean():.1%} found")


def print_pairs(name, folder):
    """Print the cosines of the pairs of a whole folder around the limit, to look at."""
    files = sorted(map(str, folder.rglob("*.jpg")))
    started = time.process_time()
    vectors = look_vectors(image_source(files))
    read = time.process_time()
    nearest, cosine = nearest_look(vectors)
    ended = time.process_time()
    print(
        f"{name}, all {len(files)}: {read - started:.1f} s to read, {ended - read:.1f} s to "
        f"compare; {(cosine >= SAME_LOOK).sum()} called the same as another"
    )
    order = np.argsort(-cosine)
    order = order[(order < nearest[order]) | (nearest[nearest[order]] != order)][:14]
    for first in order:
        print(f"  {cosine[first]:.3f} {Path(files[first]).name} {Path(files[nearest[first]]).name}")


def print_cost(images, rng):
    """Print the time to read one photograph of 12 megapixels."""
    for name, options in (
        ("JPEG", {"quality": 90}),
        ("JPEG", {"quality": 95}),
        ("JPEG", {"quality": 90, "progressive": True}),
        ("PNG", {"compress_level": 3}),
    ):
        contents = []
        for image in images[:3]:
            pixels = np.asarray(image.resize((4000, 3000), Image.Resampling.BICUBIC), dtype=int)
            pixels = pixels + rng.integers(-6, 7, (3000, 4000, 1))  # else it has no fine detail
            file = io.BytesIO()
            Image.fromarray(pixels.clip(0, 255).astype("u1")).save(file, name, **options)
            contents.append(file.getvalue())
        source = image_source(contents)
        started = time.process_time()
        look_vectors(source)
        cost = (time.process_time() - started) / len(contents)
        size = np.mean([len(content) for content in contents]) / 1e6
        print(f"12 megapixels, {name} {options}: {size:.1f} MB, {cost * 1e3:.0f} ms")


def main():
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    assets = parser.parse_args().assets
    rng = np.random.default_rng(0)
    insects = make_insects(N_IMAGES, image_size=SIDE, blur=0.0, random_state=0).images
    grocery = photographs(assets / "grocery_store", rng)
    print_cost(grocery, rng)
    print_copies("CUB", photographs(assets / "cub_birds", rng))
    print_copies("Grocery", grocery)
    print_copies("shapes on white", [saved(shape_on_white(rng)) for _ in range(N_IMAGES)])
    print_copies("bottles on white", [saved(bottle_on_white(rng)) for _ in range(N_IMAGES)])
    print_copies("insects on white", [saved(insect_on_white(pixels)) for pixels in insects])
    print_pairs("CUB", assets / "cub_birds")
    print_pairs("Grocery", assets / "grocery_store")


if __name__ == "__main__":
    main()
