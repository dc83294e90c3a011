"""Validates an SBOM by the schema of CycloneDX 1.6, which its own library ships; prints what is wrong with it."""

import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(sys.argv[1]).read_text())
print(json.dumps({"wrong": None if error is None else str(error)[:2000]}))
