"""A container on AWS's model-hosting-container-standards: FastAPI, whose routes the package makes."""

import json

import model_hosting_container_standards.sagemaker as sagemaker_standards
from fastapi import FastAPI, HTTPException, Request, Response

app = FastAPI()


@sagemaker_standards.custom_ping_handler
async def ping() -> Response:
    return Response(status_code=200)


@sagemaker_standards.custom_invocation_handler
async def invocations(request: Request) -> dict[str, list[float]]:
    try:
        return {"outputs": [2 * float(number) for number in json.loads(await request.body())["inputs"]]}
    except (ValueError, KeyError, TypeError) as error:
        raise HTTPException(400, f"the body must be JSON with inputs: {error}") from error


sagemaker_standards.bootstrap(app)
