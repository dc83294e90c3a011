"""Write the JSON schema of a CustomResourceDefinition, strictly: fields that it does not name are errors.

    crd_schema.py VERSION SOURCE <CRD.yaml >tests/judges/schemas/KIND.json

SOURCE says in the schema where the definition comes from. Descriptions, rules in CEL and the status are
left out.
"""

import json
import sys
from typing import Any

import yaml

KEPT = {
    "type", "properties", "required", "items", "additionalProperties", "enum", "pattern", "format",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "anyOf", "oneOf", "allOf", "not",
}  # fmt: skip


def strict(schema: Any) -> Any:
    """The same for a validator of JSON schemas; null is no value but where the definition says so."""
    if not isinstance(schema, dict):
        return [strict(each) for each in schema] if isinstance(schema, list) else schema
    kept = {key: strict(value) for key, value in schema.items() if key in KEPT and key != "properties"}
    if "properties" in schema:
        kept["properties"] = {name: strict(field) for name, field in schema["properties"].items()}
        if "type" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        kept["type"] = ["integer", "string"]
    if "pattern" in schema:  # Go lets flags stand anywhere
        kept["pattern"] = schema["pattern"].replace("^(?i)", "(?i)^")
    if schema.get("nullable"):
        kept["type"] = [kept["type"], "null"]
    return kept


def main() -> None:
    """Turn standard input into standard output."""
    version, source = sys.argv[1:]
    spec = yaml.safe_load(sys.stdin)["spec"]
    (found,) = (each["schema"]["openAPIV3Schema"] for each in spec["versions"] if each["name"] == version)
    schema = strict(found)
    schema["properties"].pop("status", None)
    schema["properties"]["apiVersion"]["enum"] = [f"{spec['group']}/{version}"]
    schema["properties"]["kind"]["enum"] = [spec["names"]["kind"]]
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    print(json.dumps({"$comment": source, **schema}, separators=(",", ":")))


if __name__ == "__main__":
    main()
