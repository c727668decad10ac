# SPDX-License-Identifier: Apache-2.0
"""Checks a bill of materials with the JSON schema of CycloneDX 1.5: sbom_schema.py FILE. Needs PyPI's
cyclonedx-python-lib[json-validation]."""
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

with open(sys.argv[1], encoding="utf-8") as stream:
    failure = JsonStrictValidator(SchemaVersion.V1_5).validate_str(stream.read())
if failure is not None:
    sys.exit(f"sbom: {sys.argv[1]} breaks the schema of CycloneDX 1.5: {failure}")
