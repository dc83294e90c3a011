"""``tfs-proxy deploy``: from a trained model to an endpoint on SageMaker."""

import argparse
import hashlib
import json
import logging
import re
from pathlib import Path

from tfs_proxy.commands.arguments import also_as, log_to_stderr
from tfs_proxy.commands.pack import add_layout_arguments, layout_options
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.deploy import DeployOptions, SageMaker, call_plan, requests, upload
from tfs_proxy.tools.pack.options import WarmupOptions
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)

ENDINGS = (".tar.gz", ".tgz")
NOT_YET = "dry-run"
"""Suffix of names when nothing is uploaded."""

DESCRIPTION = """\
Pack and check MODEL, upload it, and make the calls CreateModel, CreateEndpointConfig and CreateEndpoint.

MODEL is what `tfs-proxy pack` takes, or an archive. Region, profile and credentials are those of the AWS
SDK. The same model and flags give the same names, so a call that failed can be made again. With --dry-run
nothing is sent to AWS: the requests are printed, as `tfs-proxy endpoint` takes them, with the path of the
archive, so that what was tried on this machine is what is deployed.

Exit status: 0; 1 if SageMaker does not bring the endpoint into service (--wait); 2 if the model, a flag or
a call is refused; 3 if the script or its requirements can't be used.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="the trained model, or a model.tar.gz")
    target = parser.add_argument_group("on SageMaker")
    endpoint = target.add_argument(
        "--endpoint-name", dest="endpoint", required=True, metavar="NAME", help="other names begin with it"
    )
    also_as("--name", endpoint, parser)
    target.add_argument("--role", required=True, metavar="ARN", help="role that the model runs under")
    target.add_argument("--instance-type", required=True, metavar="TYPE", help="ml.m5.large, for example")
    target.add_argument("--image", required=True, metavar="ECR_URI", help="this package's image in ECR")
    target.add_argument(
        "--bucket", required=True, metavar="s3://BUCKET/PREFIX", help="where the archive is uploaded"
    )
    target.add_argument("--count", type=int, default=1, metavar="N", help="instances (default: 1)")
    target.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the container"
    )
    target.add_argument(
        "--update", action="store_true", help="change the endpoint that exists, without a gap"
    )
    target.add_argument("--wait", action="store_true", help="wait until the endpoint is in service")
    target.add_argument("--dry-run", action="store_true", help="print the requests, and send nothing")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("model.tar.gz"),
        help="the archive to write, if MODEL is not one (default: %(default)s)",
    )
    add_layout_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    log_to_stderr("info")
    options = options_of(arguments)
    call_plan(options, "")  # what AWS would refuse, before the long work
    archive = _archive(arguments)
    if arguments.dry_run:
        name = f"{options.name}-{NOT_YET}"
        print(json.dumps(requests(options, name, archive.absolute().as_uri()), indent=2))
        return 0
    plan = call_plan(options, _digest(archive))
    sagemaker = SageMaker()
    _refuse_existing(sagemaker.status(options.name), options.name, update=arguments.update)
    upload(archive, plan)
    sagemaker.deploy(plan, update=arguments.update)
    if arguments.wait:
        sagemaker.wait(options.name)
    return 0


def options_of(arguments: argparse.Namespace) -> DeployOptions:
    """Raises SettingsError for a variable that is not NAME=VALUE."""
    environment: dict[str, str] = {}
    for text in arguments.env:
        name, equals, value = text.partition("=")
        if not (re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) and equals):
            raise SettingsError(f"--env {printable(text)} can't be used: it must be NAME=VALUE.")
        environment[name] = value
    return DeployOptions(
        arguments.endpoint,
        arguments.role,
        arguments.instance_type,
        arguments.image,
        arguments.bucket,
        arguments.count,
        environment,
    )


def _archive(arguments: argparse.Namespace) -> Path:
    """The archive: MODEL itself after a check, or packed from it. Raises StopServing."""
    from tfs_proxy.tools.pack.pack import check_archive, pack

    model: Path = arguments.model
    settings = Settings.from_env()
    if model.name.endswith(ENDINGS):
        _show(check_archive(model, settings))
        return model
    warmup = WarmupOptions() if arguments.warmup else None
    packed = pack(layout_options(arguments), arguments.output, warmup, settings)
    _show(packed.warnings)
    return packed.output


def _show(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        log.warning("%s", warning)


def _refuse_existing(status: str | None, name: str, *, update: bool) -> None:
    """Raises SettingsError if the endpoint exists without ``update``, or does not exist with it."""
    if status is not None and not update:
        raise SettingsError(
            f"The endpoint {name} exists ({status}): add --update to change it, or take another "
            "--endpoint-name."
        )
    if status is None and update:
        raise SettingsError(f"There is no endpoint {name} to update: leave --update out.")


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
