"""``tfs-proxy warmup``: records requests in a model, so that its first real request is fast."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tfs_proxy.commands.arguments import at_least_one, interruptible, log_to_stderr, read_requests
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.pack.options import Fill, WarmedVersion, WarmupOptions

DESCRIPTION = """\
Write requests into the SavedModels of MODEL, in assets.extra/tf_serving_warmup_requests, which a model server
answers before it reports a version as available. A folder is changed in place, an archive is copied to -o.

The requests are made from the signature, one for each batch size that the settings allow, or they are those
of --request: what clients send to /invocations, which goes through code/inference.py if there is one.

A model server is started on the result: every request has to be answered, and the first one is timed without
and with the recorded ones. Until that is proven, nothing is written.

Exit status: 0; 2 if MODEL, a flag or a request can't be used; 3 if the script can't be used; 4 if a version
can't be loaded; 130 if stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder, or model.tar.gz")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="the archive to write, if MODEL is one"
    )
    parser.add_argument(
        "--version", type=int, metavar="N", help="the version that gets the requests (default: all)"
    )
    add_request_arguments(parser)


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose the requests to record."""
    parser.add_argument(
        "--signature", metavar="NAME", help="signature that requests are made for (default: serving_default)"
    )
    parser.add_argument(
        "--fill",
        choices=[fill.value for fill in Fill],
        default=Fill.ZEROS.value,
        help="numbers in requests that are made from the signature (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        metavar="N",
        action="append",
        type=at_least_one,
        help="records in such a request, once or more (default: each size that the settings allow)",
    )
    parser.add_argument(
        "--open-size",
        metavar="N",
        type=at_least_one,
        default=1,
        help="what other sizes are that the signature leaves open (default: %(default)s)",
    )
    parser.add_argument(
        "--request",
        metavar="FILE",
        action="append",
        type=Path,
        help="body of a request to record, or a file of data capture with many; once or more",
    )
    parser.add_argument("--content-type", metavar="TYPE", help="its type (default: by the ending of FILE)")
    parser.add_argument("--custom-attributes", metavar="TEXT", help="its custom attributes (default: none)")


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.tools.pack.warmup import warm_model

    log_to_stderr("INFO")
    with interruptible("stopped, and nothing was written"):
        options = _warmup_options(arguments)
        warmed = warm_model(arguments.model, arguments.output, options, Settings.from_env())
    print(*lines_of(warmed), sep="\n")
    return 0


def _warmup_options(arguments: argparse.Namespace) -> WarmupOptions:
    return WarmupOptions(
        requests=[
            request
            for file in arguments.request or ()
            for request in read_requests(file, arguments.content_type, arguments.custom_attributes)
        ],
        batch_sizes=tuple(sorted(set(arguments.batch_size or ()))),
        fill=Fill(arguments.fill),
        open_size=arguments.open_size,
        signature=arguments.signature,
        version=arguments.version,
    )


def lines_of(warmed: Sequence[WarmedVersion]) -> Sequence[str]:
    return [
        f"{version.model} version {version.version}: {_requests(version.records)}; the first request takes "
        f"{version.warm_ms:.1f} ms instead of {version.cold_ms:.1f}, later ones {version.median_ms:.1f}"
        for version in warmed
    ]


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
