# SPDX-License-Identifier: Apache-2.0
"""A rank of a job with stock PyTorch that hangs: rank 1 stays in a call of C and holds the
interpreter's lock, so that nothing of Python runs there any more."""
import ctypes

import torch
import torch.distributed as dist

import regroup

regroup.Context.from_environment()  # Lets the agent ask this process for its flight records.
dist.init_process_group("gloo")
values = torch.ones(3)
for _ in range(2):
    dist.all_reduce(values)
if dist.get_rank() == 1:
    ctypes.PyDLL(None).pause()
dist.all_reduce(values)
