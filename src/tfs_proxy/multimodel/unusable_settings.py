"""Settings that multi-model mode can't work with are refused before anything starts."""

from tfs_proxy.errors import SettingsError
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.nginx import config as nginx


def refuse_unusable(settings: Settings) -> None:
    """Raise SettingsError for settings that multi-model mode can't work with."""
    if nginx.find() is None or not settings.nginx:
        raise SettingsError(
            "multi-model mode needs nginx, which sends requests to their models: install it, and don't set "
            "TFS_PROXY_NGINX=false."
        )
    if settings.gunicorn_worker_class != "gthread":
        raise SettingsError(
            f"SAGEMAKER_GUNICORN_WORKER_CLASS={settings.gunicorn_worker_class} can't be used in multi-model "
            "mode: take gthread."
        )
