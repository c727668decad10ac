# SPDX-License-Identifier: Apache-2.0
"""Checks JSON values, one a line of stdin, against a JSON schema: check_schema.py SCHEMA.

In the schema, fields may be added to an object. Here a field that it does not describe is an error,
so that the documents stay complete. Prints what is wrong. Exit code: 0, 1, or 77 without the
module jsonschema (Debian: python3-jsonschema).
"""

import json
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("python3-jsonschema is not installed")
    sys.exit(77)


def closed(schema):
    """The schema, with no further field in any object that has a list of fields."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        result["additionalProperties"] = False
    return result


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    # A line is checked against the one kind that its event names, for a message that helps.
    kinds = {
        kind["properties"]["event"]["const"]: kind for kind in closed(schema).get("oneOf", [])
    }
    count = 0
    wrong = 0
    for line in sys.stdin:
        value = json.loads(line)
        count += 1
        if kinds and value.get("event") not in kinds:
            print(f"unknown event: {line.strip()}")
            wrong += 1
            continue
        used = dict(kinds[value["event"]]) if kinds else closed(schema)
        if kinds:
            used["$defs"] = schema.get("$defs", {})
        for error in Draft202012Validator(used).iter_errors(value):
            print(f"{error.json_path}: {error.message[:300]}")
            wrong += 1
        Draft202012Validator(schema).validate(value)
    print(f"{count} values, {wrong} errors")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
