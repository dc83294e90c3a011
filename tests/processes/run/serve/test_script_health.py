"""A script's own health: ``health(context)``, which decides /ping and not /live, of its own model alone."""

import sys
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, pack, stand_in_words, without_nginx
from support.multi_model import serving_many
from support.scraping import scrape
from support.stack import Stack, serving

pytestmark = pytest.mark.slow

SOONER = (
    "import sys\n"
    "from tfs_proxy.run import heartbeats\n"
    "heartbeats.HEALTH_SECONDS = 0.5\n"
    "sys.argv = sys.argv[3:]\n"
    "from tfs_proxy.cli import main\n"
    "sys.exit(main())"
)
LAUNCHER = (sys.executable, "-c", SOONER)
HEALTH = """
import pathlib, time

{kind} health(context):
    says = pathlib.Path({says!r}).read_text()
    if says == "hang":
        time.sleep(60)
    if says == "down":
        raise ConnectionError(f"no store at /srv/features, {{context.model_dir[0]}}")
    return says != "false"
"""
HANDLER = "\ndef handler(data, context):\n    return 'served', 'text/plain'\n"
MODEL = "\ndef model_fn(model_dir):\n    return 1\n\ndef predict_fn(data, model):\n    return 'served'\n"
SAID = "health(context) of the script "
DOWN = SAID + "failed: ConnectionError: no store at features, /"


def script(says: Path, rest: str, kind: str = "def") -> str:
    """A script whose health is what the file ``says``, which begins well."""
    says.write_text("true")
    return HEALTH.format(kind=kind, says=str(says)) + rest


def wait_for_ping(stack: Stack, status: int, error: str | None = None) -> None:
    """Wait until /ping answers so."""

    def is_there() -> bool:
        answer = stack.ask("GET", "/ping")
        return answer.status == status and (error is None or answer.json == {"error": error})

    stack.wait_until(is_there, f"/ping is {status}, {error}")


@pytest.mark.parametrize(
    "env", [pytest.param({}, id="nginx", marks=NEEDS_NGINX), pytest.param(without_nginx(), id="gunicorn")]
)
def test_two_failures_in_a_row_are_an_unready_run_that_lives_and_serves(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """One success makes it ready again; a call that hangs fails, too."""
    says = tmp_path / "says"
    words = stand_in_words(tmp_path, script(says, HANDLER))
    with serving(*words, env=env, launcher=LAUNCHER, workers=2) as stack:
        stack.wait_until(
            lambda: scrape(stack).total("tfs_proxy_script_healthy", model="m") == 1, "it has been asked"
        )
        for word, error in [("down", DOWN), ("true", None), ("false", SAID + "returned False")]:
            says.write_text(word)
            wait_for_ping(stack, 200 if error is None else 503, error)
        assert stack.ask("GET", "/live").status == 200
        assert stack.ask("GET", "/v2/health/ready").json == {"live": True, "ready": False}
        assert stack.ask("GET", "/v2/health/live").status == 200
        assert stack.ask("GET", "/v2/models/m/ready").status == 503
        assert stack.invoke("x").body == b"served"
        metrics = scrape(stack)
        assert (metrics.total("tfs_proxy_script_healthy", model="m"), metrics.total("tfs_proxy_ready")) == (
            0,
            0,
        )
        says.write_text("hang")
        wait_for_ping(stack, 503, SAID + "did not return within 5 s")
        assert stack.stop() == 0
        assert f"model m is not healthy: {DOWN}\n" in stack.log
        assert "model m is healthy again\n" in stack.log
        assert "in health: ConnectionError: no store at /srv/features" in stack.log


@NEEDS_NGINX
def test_of_many_models_only_the_one_is_unhealthy(tmp_path: Path) -> None:
    """It is named by the log, by its description and by the protocol's readiness, and serves."""
    says = tmp_path / "says"
    sick = pack(tmp_path / "sick.tar.gz", {"code/inference.py": script(says, MODEL, "async def")})
    with serving_many(launcher=LAUNCHER) as stack:
        for name in ("sick", "other"):
            stack.loaded(name, sick)
            says.write_text("down")
            sick = pack(tmp_path / "other.tar.gz", {"code/inference.py": MODEL})
        stack.wait_until(lambda: "unhealthy" in stack.described("sick").json, "it is unhealthy")
        assert stack.described("sick").json["unhealthy"] == DOWN
        assert stack.described("other").json.keys() == {"modelName", "modelUrl"}
        ready = {path: stack.ask("GET", path).status for path in ("/ping", "/v2/health/ready", "/live")}
        assert set(ready.values()) == {200}
        assert [stack.ask("GET", f"/v2/models/{name}/ready").status for name in ("sick", "other")] == [
            503,
            200,
        ]
        assert stack.invoke_model("sick", "[1]", "application/json").status == 200
        assert scrape(stack).total("tfs_proxy_script_healthy", model="sick") == 0
        stack.wait_for_log(f"model sick is not healthy: {DOWN}")
