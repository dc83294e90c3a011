"""Write build/train/abalone.csv: rows of the abalone data set's columns, made by a relation that is known.

No header, as the data set has none: sex, length, diameter, height, four weights, and rings, the label.
"""

from pathlib import Path

import numpy as np
import pandas as pd

TRAIN = Path(__file__).resolve().parent / "build" / "train"
ROWS = 4000
NOISE = 0.2
MISSING = 0.0005

BASE = 2.2
OF_SEX = {"M": 0.5, "F": 0.7, "I": -0.7}
OF_COLUMN = {
    "length": 5.0,
    "diameter": 4.0,
    "height": 10.0,
    "whole_weight": 2.0,
    "shucked_weight": -6.0,
    "viscera_weight": 3.0,
    "shell_weight": 12.0,
}


def rings(row: pd.Series) -> float:
    """What the relation gives for one abalone."""
    return BASE + OF_SEX[row["sex"]] + sum(factor * row[name] for name, factor in OF_COLUMN.items())


def abalones(count: int, random: np.random.Generator) -> pd.DataFrame:
    """Shells of plausible sizes, without their rings."""
    length = random.uniform(0.1, 0.8, count)
    whole = 6 * length**3 * random.normal(1, 0.15, count).clip(0.5)
    shares = random.normal([0.43, 0.22, 0.28], 0.04, (count, 3)).clip(0.05)
    return pd.DataFrame(
        {
            "sex": random.choice(list(OF_SEX), count),
            "length": length,
            "diameter": 0.8 * length * random.normal(1, 0.05, count),
            "height": 0.27 * length * random.normal(1, 0.1, count),
            "whole_weight": whole,
            "shucked_weight": whole * shares[:, 0],
            "viscera_weight": whole * shares[:, 1],
            "shell_weight": whole * shares[:, 2],
        }
    )


def main() -> None:
    random = np.random.default_rng(1)
    table = abalones(ROWS, random)
    table["rings"] = table.apply(rings, axis=1) + random.normal(0, NOISE, ROWS)
    table = table.round(4)
    for name in OF_COLUMN:  # a few cells are empty, for the imputer
        table.loc[random.random(ROWS) < MISSING, name] = np.nan
    TRAIN.mkdir(parents=True, exist_ok=True)
    table.to_csv(TRAIN / "abalone.csv", header=False, index=False)
    print(f"{ROWS} rows in {TRAIN / 'abalone.csv'}")


if __name__ == "__main__":
    main()
