# SPDX-License-Identifier: Apache-2.0
"""Loads a trace into Perfetto's trace processor: check_trace.py TRACE.

Prints "slices N, flows N, errors N". Exit code: 0, 1, or 77 without the package perfetto or the
program trace_processor_shell, which the package fetches from the network (TRACE_PROCESSOR names one
that is there).
"""

import os
import sys

try:
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
except ImportError:
    print("the Python package perfetto is not installed")
    sys.exit(77)


def main():
    shell = os.environ.get("TRACE_PROCESSOR")
    config = TraceProcessorConfig(bin_path=shell) if shell else TraceProcessorConfig()
    try:
        processor = TraceProcessor(trace=sys.argv[1], config=config)
    except Exception as error:  # The kinds depend on how the download fails.
        print(f"no trace processor: {str(error).splitlines()[0][:200]}")
        return 77

    def number(query):
        return next(iter(processor.query(query))).n

    slices = number("select count(*) as n from slice")
    flows = number("select count(*) as n from flow")
    errors = number(
        "select ifnull(sum(value), 0) as n from stats"
        " where severity in ('error', 'data_loss') and value > 0"
    )
    print(f"slices {slices}, flows {flows}, errors {errors}")
    return 0 if slices and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
