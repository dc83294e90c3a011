"""``tfs-proxy pack``: a model.tar.gz from a trained model, checked before it is written."""

import argparse
import re
import time
from pathlib import Path

from tfs_proxy.commands.arguments import interruptible, log_to_stderr, read_requests
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.export.preprocessing import (
    DEFAULT_TOP,
    ImageInput,
    Preprocessing,
    read_labels,
    read_standardize,
)
from tfs_proxy.tools.pack.lay_out import DEFAULT_PYTHONS, LayoutOptions
from tfs_proxy.values.errors import SettingsError


def add_preprocessing_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that give the model a new ``serving_default``."""
    group = parser.add_argument_group("in the graph")
    group.add_argument(
        "--decode-image",
        metavar="HxW:MODE",
        help="read JPEG and PNG files, resized to H x W pixels; MODE is none (0..255, the default), scale "
        "(x/255), tf, torch or caffe (as Keras' preprocess_input), or 'mean=R,G,B;std=R,G,B' on 0..1",
    )
    group.add_argument(
        "--standardize",
        metavar="FILE",
        type=Path,
        help='subtract means from columns and divide by deviations: {"INPUT": {"mean": [...], "std": [...]}}',
    )
    group.add_argument(
        "--labels", metavar="FILE", type=Path, help="answer these labels, one a line, in the classes' order"
    )
    group.add_argument(
        "--top",
        metavar="K",
        type=int,
        help=f"how many labels to answer, the most probable first (default: {DEFAULT_TOP}); without "
        "--labels, numbers of classes",
    )
    group.add_argument("--softmax", action="store_true", help="turn the model's logits into probabilities")


def preprocessing_of(arguments: argparse.Namespace) -> Preprocessing | None:
    """None if no flag asks for preprocessing. Raises SettingsError."""
    if arguments.decode_image is not None and arguments.standardize is not None:
        raise SettingsError(
            "--decode-image and --standardize exclude each other: one is for pictures, one for tables."
        )
    if arguments.top is not None and arguments.top < 1:
        raise SettingsError(f"--top {arguments.top}: at least 1 label is answered.")
    preprocessing = Preprocessing(
        image=None if arguments.decode_image is None else ImageInput.parse(arguments.decode_image),
        standardize={} if arguments.standardize is None else read_standardize(arguments.standardize),
        labels=() if arguments.labels is None else read_labels(arguments.labels),
        top=arguments.top,
        softmax=arguments.softmax,
    )
    return None if preprocessing == Preprocessing() else preprocessing


MACHINES = ("x86_64", "aarch64")

DESCRIPTION = """\
Write an archive that `tfs-proxy serve` and SageMaker serve, from MODEL: a SavedModel, a folder of its
versions, or a file of Keras 3 or 2 (.keras, .h5).

A Keras file is exported as a SavedModel, by TensorFlow in a process of its own. One that would run code
(a Lambda layer, for example) is refused, unless --allow-code is given.

What is packed is what `tfs-proxy check` finds nothing wrong with. The same files always give the same bytes.

With --warmup, every model server answers requests that are recorded in the models before it is ready. One
answers and loads them here first.

Exit status: 0; 2 if MODEL, a flag, a request or the output can't be used; 3 if the script or its requirements
can't be used; 4 if a model can't be loaded with --warmup; 130 if stopped. Unless it is 0, nothing is written.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="the trained model, a file or a folder")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("model.tar.gz"),
        help="the archive to write (default: %(default)s)",
    )
    parser.add_argument(
        "--model-name", dest="name", metavar="NAME", help="in the archive (default: the file's or folder's)"
    )
    parser.add_argument(
        "--version", type=int, metavar="N", help="its version number (default: that of the folder, else 1)"
    )
    parser.add_argument(
        "--allow-code", action="store_true", help="run the code in MODEL, a Keras file that you trust"
    )
    parser.add_argument(
        "--csv-columns",
        metavar="NAME,NAME",
        help="order of the columns of CSV without a header (default: that of a Keras model's inputs)",
    )
    _add_code_arguments(parser.add_argument_group("code/"))
    add_preprocessing_arguments(parser)
    warmup = parser.add_argument_group("for a fast first request")
    warmup.add_argument(
        "--warmup", action="store_true", help="record requests made from the signature in the model"
    )
    warmup.add_argument(
        "--request",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="record these instead: the body of one, or a file of data capture with many; once or more",
    )
    warmup.add_argument("--content-type", metavar="TYPE", help="their type (default: by the ending of FILE)")


def _add_code_arguments(code: "argparse._ArgumentGroup") -> None:
    code.add_argument(
        "--script",
        metavar="PATH",
        type=Path,
        help="inference.py, or the folder that it is in with all it needs",
    )
    code.add_argument("--requirements", metavar="FILE", type=Path, help="the packages that the script needs")
    code.add_argument(
        "--wheels", action="store_true", help="download them into the archive, for hosts without a network"
    )
    code.add_argument(
        "--python",
        metavar="X.Y",
        action="append",
        type=_python,
        help="Python that the wheels are for, once or more: the image for CPUs has 3.13, the one for GPUs "
        f"3.12 (default: {DEFAULT_PYTHONS[0]})",
    )
    code.add_argument(
        "--machine",
        choices=MACHINES,
        default=MACHINES[0],
        help="processor that they are for (default: %(default)s)",
    )


def _python(text: str) -> str:
    if not re.fullmatch(r"3\.[0-9]{1,2}", text):
        raise argparse.ArgumentTypeError(f"{text} is not a version of Python such as {DEFAULT_PYTHONS[0]}")
    return text


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.tools.pack.pack import pack

    log_to_stderr("INFO")
    began = time.monotonic()
    with interruptible("stopped, and nothing was written"):
        requests = [
            each for file in arguments.request for each in read_requests(file, arguments.content_type, None)
        ]
        warmup = requests if arguments.warmup or arguments.request else None
        packed = pack(_layout_options(arguments), arguments.output, warmup, Settings.from_env())
    print(*packed.report, sep="\n")
    print(f"Packed {arguments.output}, {_size(packed.size)}, in {time.monotonic() - began:.1f} s")
    print(f"Next: tfs-proxy serve {arguments.output}")
    return 0


def _layout_options(arguments: argparse.Namespace) -> LayoutOptions:
    return LayoutOptions(
        model=arguments.model,
        name=arguments.name,
        version=arguments.version,
        script=arguments.script,
        requirements=arguments.requirements,
        wheels=arguments.wheels,
        pythons=tuple(arguments.python or DEFAULT_PYTHONS),
        machine=arguments.machine,
        allow_code=arguments.allow_code,
        preprocessing=preprocessing_of(arguments),
        csv_columns=arguments.csv_columns,
    )


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.3g} {unit}"
        count = round(count / 1000, 1)  # type: ignore[assignment]
    return f"{count:.3g} GB"
