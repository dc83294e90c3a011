"""A container with FastAPI behind uvicorn: JSON in and JSON out."""

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Numbers(BaseModel):
    inputs: list[float]


@app.get("/ping")
async def ping() -> dict[str, str]:
    return {"status": "healthy"}


@app.post("/invocations")
async def invocations(numbers: Numbers) -> dict[str, list[float]]:
    return {"outputs": [2 * number for number in numbers.inputs]}
