# SPDX-License-Identifier: Apache-2.0
"""Imports modules once, and forks the workers of a node. Runs as `python3 OPTIONS -c SOURCE PROGRAM
MODULES`; fork_server.h describes the messages. After a "~", modules that cannot be imported are left
out.

    agent -- fork server -- helper -- worker        A worker begins like this,
    agent -- worker                                 and the helper ends.
"""
import sys

has_first_path = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
if has_first_path:
    del sys.path[0]  # The working folder may have files with the names of Python's own modules.

import array
import ctypes
import gc
import os
import signal
import socket
import time

PR_SET_PDEATHSIG, PR_SET_MM, PR_SET_MM_MAP, PR_SET_PTRACER = 1, 35, 14, 0x59616D61
DESCRIPTORS = 5  # Of a request: the specification, the worker's socket, and its 0, 1 and 2.
OPENMP = ("libgomp", "libomp", "libiomp5")
OPENBLAS_SETTERS = ("openblas_set_num_threads", "openblas_set_num_threads64_",
                    "scipy_openblas_set_num_threads", "scipy_openblas_set_num_threads64_")
libc = ctypes.CDLL(None, use_errno=True)
first_path = None  # sys.path[0], as set_first_path() has set it.


def memory_map():
    """The first words of struct prctl_mm_map for this process."""
    libc.sbrk.restype = ctypes.c_void_p
    with open("/proc/self/stat") as stat:
        fields = [int(field) for field in stat.read().rpartition(")")[2].split()[1:]]
    code, stack, data, heap, texts = 22, 24, 41, 43, 44
    return [*fields[code:code + 2], *fields[data:data + 2], fields[heap], libc.sbrk(0),
            fields[stack], *fields[texts:texts + 4]]


ARGUMENTS_BEGIN, ARGUMENTS_END = 7, 8
command_line = memory_map()[ARGUMENTS_BEGIN:ARGUMENTS_END + 1]


def main(program, modules):
    """Serves until the agent is gone. Returns in the worker, as begin_worker() does."""
    agent = os.getppid()
    control = socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    set_title([b"regroup: fork server for " + os.fsencode(modules)])
    set_first_path(program)
    begin = time.monotonic()
    for module in modules.lstrip("~").split(","):
        refusal = import_module(module, modules.startswith("~"))
        if refusal:
            control.send(b"\0".join([b"refused", os.fsencode(module), os.fsencode(refusal)]))
            os._exit(0)
    if "torch" in sys.modules:
        import_watch()
    sys.__stdout__.flush()  # Else each worker would write it, too.
    gc.collect()
    gc.freeze()  # A later collection would write to the pages that the workers share.
    seconds = time.monotonic() - begin
    control.send(b"ready\0%d\0%d" % (seconds * 1000, resident_kib()))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for the helpers.
    while True:
        _, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(DESCRIPTORS * 4),
                                             socket.MSG_CMSG_CLOEXEC)
        descriptors = [fd for _, _, data in ancillary
                       for fd in array.array("i", data[:len(data) - len(data) % 4])]
        if len(descriptors) != DESCRIPTORS:
            os._exit(0)  # The agent is gone.
        if os.fork() == 0:
            try:
                control.close()
                return begin_worker(agent, descriptors)
            except BaseException:  # The agent starts the worker in another way, or says why not.
                os._exit(1)
        for fd in descriptors:
            os.close(fd)


def import_module(module, may_be_left_out):
    """Returns the reason why workers cannot be forked after this import, or nothing."""
    try:
        __import__(module)
    except BaseException as error:
        if may_be_left_out and isinstance(error, Exception):
            return None
        return f"its import failed: {type(error).__name__}: {error}"
    started = len(os.listdir("/proc/self/task")) - 1
    if started > 0:
        return f"{started} thread(s) run after its import, which a forked process does not have"
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/")):
            return f"its import opened {path}, and a GPU cannot be used after a fork"
    return None


WATCH = "regroup._torch_watch"


def import_watch():
    """Imports what tells the agent PyTorch's collectives, if this Python has regroup's package. The
    program may have a module of that name."""
    from importlib.machinery import PathFinder
    found = PathFinder.find_spec("regroup")
    if found and found.origin and \
            os.path.isfile(os.path.join(os.path.dirname(found.origin), "_torch_watch.py")):
        import_module(WATCH, True)


def begin_worker(agent, descriptors):
    """Makes this process, the helper, fork the worker. Returns in the worker, with the words of its
    command line, the index of the program in them, and the environment."""
    specification, own, *standard = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    adopted, release = os.pipe()
    helper = os.getpid()
    if os.fork() != 0:
        os.close(release)
        os.read(adopted, 1)  # Returns when the worker closes its end.
        os._exit(0)
    os.close(adopted)
    os.setsid()
    libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(agent), 0, 0, 0)
    with open(specification, "rb") as file:
        file.seek(0)
        words = file.read().split(b"\0")
    counts, folder, cpus, memory_nodes = words[:4]
    arguments, first = (int(count) for count in counts.split())
    command = words[4:4 + arguments]
    environment = words[4 + arguments:]
    for fd, source in enumerate(standard):
        os.dup2(source, fd)
        os.close(source)
    if folder:
        os.chdir(folder)
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split()})
    if memory_nodes:
        prefer_memory([int(node) for node in memory_nodes.split()])
    with socket.socket(fileno=own) as connection:
        connection.settimeout(30)
        connection.send(b"hello")
        if connection.recv(1) != b"g":
            os._exit(0)
        os.close(release)
        deadline = time.monotonic() + 30
        while os.getppid() == helper and time.monotonic() < deadline:
            time.sleep(0.0001)
        # If the agent died before, no signal comes.
        libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != agent:
            os._exit(0)
        connection.send(b"child")
        if connection.recv(1) != b"g":
            os._exit(0)
    return command, first, environment


def prefer_memory(nodes):
    """As the agent does it for other workers: see LinuxLauncher."""
    local, preferred, preferred_many = 4, 1, 5
    number = {"x86_64": 238, "aarch64": 237}.get(os.uname().machine)
    if number is None:
        return
    bits = 64 * (max(nodes) // 64 + 1)
    mask = (ctypes.c_ulong * (bits // 64))()
    for node in nodes:
        mask[node // 64] |= 1 << (node % 64)
    size = ctypes.c_ulong(bits + 1)
    if libc.syscall(number, preferred_many, mask, size) != 0 and \
            libc.syscall(number, preferred, mask, size) == 0:
        libc.syscall(number, local, None, ctypes.c_ulong(0))


def adapt(command, first, environment):
    """Makes up for what a new process would have done while it started. Returns the words of the
    command line from the program on."""
    set_title(command)
    words = [os.fsdecode(word) for word in command]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = words
    before = os.environ.get("OMP_NUM_THREADS")
    coerced = os.environb.get(b"LC_CTYPE")  # Python sets it if the locale is C.
    os.environ.clear()
    for entry in environment:
        name, _, value = entry.partition(b"=")
        if name:
            os.environb[name] = value
    if coerced and "LC_ALL" not in os.environ:
        os.environb.setdefault(b"LC_CTYPE", coerced)
    reopen_streams()
    if "threading" in sys.modules:
        sys.modules["threading"].main_thread()._set_native_id()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # Else all workers have the same random numbers.
    import importlib
    importlib.invalidate_caches()
    if WATCH in sys.modules:
        sys.modules[WATCH].start()
    threads = os.environ.get("OMP_NUM_THREADS")
    blas = os.environ.get("OPENBLAS_NUM_THREADS", threads) or str(len(os.sched_getaffinity(0)))
    for library in libraries():
        name = os.path.basename(library)
        if threads and threads != before and threads.isdigit() and name.startswith(OPENMP):
            ctypes.CDLL(library).omp_set_num_threads(int(threads))
        if "openblas" in name and blas.isdigit() and blas != "1":
            for setter in OPENBLAS_SETTERS:
                if hasattr(ctypes.CDLL(library), setter):
                    getattr(ctypes.CDLL(library), setter)(int(blas))
    return words[first:]


def reopen_streams():
    """They were other files when Python looked at them. Modules may have kept the objects."""
    for fd, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        name, direct = stream.name, stream.write_through  # Direct: the option -u.
        file = open(fd, "wb" if fd else "rb", 0 if fd and direct else -1, closefd=False)
        getattr(file, "raw", file).name = name
        stream.__init__(file, stream.encoding, stream.errors, "\n", write_through=direct,
                        line_buffering=not direct and (fd == 2 or file.isatty()))


def libraries():
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}
    return sorted(filter(os.path.exists, paths))


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def set_title(words):
    """Gives this process the command line `words`, as far as it is not longer than the first."""
    begin, end = command_line
    room = end - begin - 2
    if room <= 0:
        return  # A sandbox that does not tell the addresses.
    text = b"\0".join(words)[:room] + b"\0"
    ctypes.memset(begin, 0, end - begin)
    mapping = memory_map()
    mapping[ARGUMENTS_END] = begin + len(text)
    no_vector, no_file = 0, 0xffffffff << 32
    structure = array.array("Q", mapping + [no_vector, no_file])
    address, count = structure.buffer_info()
    number = ctypes.c_ulong
    if libc.prctl(PR_SET_MM, number(PR_SET_MM_MAP), number(address),
                  number(count * structure.itemsize), number(0)) != 0:
        # A kernel that does not move the end shows a text up to its zero byte if the last byte is
        # none.
        text = b" ".join(words)[:room] + b"\0"
        ctypes.memset(end - 1, 1, 1)
    ctypes.memmove(begin, text, len(text))


def set_first_path(program):
    """sys.path[0], as Python sets it for `-m MODULE`, `-c CODE`, or a script."""
    global first_path
    before, first_path = first_path, first_path_of(program)
    if before is not None and before in sys.path:  # A module may have put others before it.
        sys.path[sys.path.index(before)] = first_path
    elif first_path is not None:
        sys.path.insert(0, first_path)


def first_path_of(program):
    if program[0] not in ("-m", "-c") and is_package(program[0]):
        return absolute(program[0])
    if not has_first_path:
        return None
    if program[0] == "-m":
        return os.getcwd()
    return "" if program[0] == "-c" else os.path.dirname(os.path.realpath(program[0]))


def absolute(path):
    """As Python does it for a script: without normalization."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def is_package(path):
    """A folder or an archive, which may have a __main__ module."""
    for hook in sys.path_hooks:
        try:
            hook(path)
            return True
        except ImportError:
            pass
    return False


def run(words):
    """Runs the program as Python does: `words` are those of its command line after the options."""
    import builtins
    import importlib.machinery
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    if "__annotations__" in globals():
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    sys.argv = ["-m"] + words[2:] if words[0] == "-m" else words
    set_first_path(words)
    # Python 3.13 keeps the text of `-c` for tracebacks. It was the text of this file.
    lines = getattr(sys.modules.get("linecache"), "cache", {})
    kept = lines.pop("<string>", None)
    if words[0] == "-m":
        import runpy
        runpy._run_module_as_main(words[1])
    elif words[0] == "-c":
        sys.argv = ["-c"] + words[2:]
        module.__loader__ = importlib.machinery.BuiltinImporter
        if kept:
            lines["<string>"] = len(words[1]), None, words[1].splitlines(True), "<string>"
        exec(compile(words[1], "<string>", "exec", dont_inherit=True), module.__dict__)
    elif is_package(words[0]):
        import runpy
        runpy._run_module_as_main("__main__", alter_argv=False)
    else:
        path = absolute(words[0])
        try:
            with open(path, "rb") as file:
                source = file.read()
        except OSError as error:
            print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] "
                  f"{error.strerror}", file=sys.stderr)
            sys.exit(2)
        module.__file__ = path
        module.__cached__ = None
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def hide_own_frames():
    """A traceback shows the program's frames only."""
    own, hook = globals(), sys.excepthook

    def show(kind, error, trace):
        while trace is not None and trace.tb_frame.f_globals is own:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)
    sys.excepthook = show


if __name__ == "__main__":
    own_words = adapt(*main(sys.argv[1:-1], sys.argv[-1]))
    try:
        run(own_words)
    except BaseException:
        hide_own_frames()
        raise
