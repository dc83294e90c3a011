"""Make many photographs out of the two in build/images: crops, mirrored, lighter or darker, as JPEG files.

    python photographs.py 2000

writes build/photographs/00000.jpg and so on; the same number makes the same files. Those there are kept.
"""

import random
import sys
from pathlib import Path

from PIL import Image, ImageEnhance, ImageOps

BUILD = Path(__file__).resolve().parent / "build"
PHOTOGRAPHS = BUILD / "photographs"
SIDE = 256


def main() -> None:
    """Make as many as the command says, 2,000 without a word."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    PHOTOGRAPHS.mkdir(parents=True, exist_ok=True)
    originals = [Image.open(path).convert("RGB") for path in sorted((BUILD / "images").glob("*.jpg"))]
    for number in range(count):
        path = PHOTOGRAPHS / f"{number:05}.jpg"
        if not path.exists():
            varied(originals[number % len(originals)], random.Random(number)).save(path, quality=90)
    print(f"{count} photographs in {PHOTOGRAPHS}")


def varied(original: Image.Image, chance: random.Random) -> Image.Image:
    """A square part of ``original``, perhaps mirrored, of another brightness."""
    side = chance.randint(SIDE, min(original.size))
    left = chance.randint(0, original.width - side)
    top = chance.randint(0, original.height - side)
    part = original.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
    if chance.random() < 0.5:
        part = ImageOps.mirror(part)
    return ImageEnhance.Brightness(part).enhance(chance.uniform(0.6, 1.4))


if __name__ == "__main__":
    main()
