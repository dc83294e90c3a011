"""The package index of a repository in AWS's CodeArtifact, for the installer of requirements.txt.

Its password, a token, is got anew for each installation. The installer reads it in a file, which is removed
afterwards: pip repeats the address of an index, with a password in it, among the arguments of the processes
that build packages. boto3 is imported only here and then; it finds endpoints and credentials itself.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tfs_proxy.values.errors import RequirementsError
from tfs_proxy.wire.s3_client import CONNECT_SECONDS, one_line


def index_environment(arn: str, env: Mapping[str, str], netrc: Path) -> Mapping[str, str]:
    """Ask AWS for the index of the repository ``arn``; returns ``env`` with it, for pip and for uv.

    The new file ``netrc`` gets its token, and what the user's own file of passwords has. Raises
    RequirementsError with AWS's or boto3's words.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    _, _, _, region, owner, path = arn.split(":")
    _, domain, repository = path.split("/")
    # A stop waits for these calls, so that they may take seconds only.
    config = Config(
        connect_timeout=CONNECT_SECONDS, read_timeout=CONNECT_SECONDS, retries={"total_max_attempts": 2}
    )
    try:
        client = boto3.client("codeartifact", region_name=region, config=config)
        granted = client.get_authorization_token(domain=domain, domainOwner=owner)
        found = client.get_repository_endpoint(
            domain=domain, domainOwner=owner, repository=repository, format="pypi"
        )
    except (BotoCoreError, ClientError) as error:
        raise RequirementsError(
            f"{arn} can't be the package index of code/requirements.txt: {one_line(error)}. "
            "Check CA_REPOSITORY_ARN, the network and the machine's credentials: they need "
            "codeartifact:GetAuthorizationToken with sts:GetServiceBearerToken, "
            "codeartifact:GetRepositoryEndpoint and codeartifact:ReadFromRepository."
        ) from error
    index = f"{found['repositoryEndpoint'].rstrip('/')}/simple/"
    password = f"machine {urlsplit(index).hostname} login aws password {granted['authorizationToken']}"
    users = Path(env.get("NETRC", "~/.netrc")).expanduser()
    others = users.read_text() if users.is_file() else ""
    netrc.touch(0o600)
    netrc.write_text(f"{others}\n{password}\n")
    return {**env, "PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index, "NETRC": str(netrc)}
