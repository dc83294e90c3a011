"""A container with FastAPI behind uvicorn: JSON in and JSON out."""

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Numbers(BaseModel):
    """What a request has."""

    inputs: list[float]


@app.get("/ping")
async def ping() -> dict[str, str]:
    """Healthy as soon as it answers."""
    return {"status": "healthy"}


@app.post("/invocations")
async def invocations(numbers: Numbers) -> dict[str, list[float]]:
    """Twice each number."""
    return {"outputs": [2 * number for number in numbers.inputs]}
