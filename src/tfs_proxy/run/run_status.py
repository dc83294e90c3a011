"""Answers about a run: to nginx, workers and probes by the control API, and to scrapes by its metrics.

It follows the stack that serves: `run.succession` names the next one.
"""

import logging
from pathlib import Path

from tfs_proxy.data.capture.files import check_folder, described
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.run.control_api import ControlApi, captured_records, served_models
from tfs_proxy.run.logs.run_records import RunRecords
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.open_inference import OpenInferenceApi, ServedArchive
from tfs_proxy.run.plan import ProcessPlan
from tfs_proxy.run.scraping import OutsideMetrics
from tfs_proxy.run.stack import ServingStack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.routes import Handlers

log = logging.getLogger(__name__)


class RunStatus:
    """The control API and the metrics of one run, from the ``stack`` that serves and its ``records``.

    ``more`` are routes of others.
    """

    def __init__(
        self,
        settings: Settings,
        records: RunRecords,
        workspace: Workspace,
        stack: ServingStack,
        more: Handlers,
    ) -> None:
        self._settings, self._records = settings, records
        self._outside = OutsideMetrics()
        readiness = stack.readiness
        self._metrics = RunMetrics(
            readiness,
            stack.children,
            workspace.journal,
            self._outside.measure,
            records.measure,
            threads_each=settings.gunicorn_threads,
        )
        self._archive = ServedArchive(readiness, lambda: self.control_api.deployment)
        self._open_inference = OpenInferenceApi(
            readiness, self._archive, records.times, settings.version_labels, workspace.grpc_router_socket
        )
        routes = {
            **more,
            **records.run_log.routes,
            **(self._open_inference.routes if settings.publishes_open_inference else {}),
            **served_models(self._archive.served),
            **captured_records(records.captured.add),
        }
        self.control_api = ControlApi(readiness, routes, measure=self._metrics.measure, outside=self._outside)
        self._show(stack)

    def expect(self, planned: ProcessPlan, deployment: Deployment) -> None:
        """The next stack will serve this. Raises SettingsError if captured records can't be written."""
        refuse_unusable_capture(deployment)
        self._records.requests.expect(KnownModels(deployment.default_model, deployment.models))
        self._serve(planned, deployment)

    def follow(self, stack: ServingStack, planned: ProcessPlan, deployment: Deployment, stages: Path) -> None:
        """Switches to another stack, which serves this; its workers have their tables in ``stages``."""
        known = KnownModels(deployment.default_model, deployment.models)
        self._records.requests.expect_other_models(known, stages)
        self._show(stack)
        self._serve(planned, deployment)
        self.warm_up()

    def warm_up(self) -> None:
        """Asks all sources of metrics, so that the first scrape has something to show."""
        self._outside.warm_up()

    def _serve(self, planned: ProcessPlan, deployment: Deployment) -> None:
        self.control_api.deployment = deployment
        self._outside.model_servers.begin(deployment.instances, planned.metrics_path)

    def _show(self, stack: ServingStack) -> None:
        self._records.follow(stack.children)
        self._metrics.follow(stack.readiness, stack.children)
        self._archive.readiness = stack.readiness
        self.control_api.follow(stack.readiness, stack.children.serves)
        self._open_inference.readiness = stack.readiness


def refuse_unusable_capture(deployment: Deployment) -> None:
    """Raises SettingsError if records should be captured and can't be written; else logs where they go."""
    if deployment.capture is not None:
        check_folder(deployment.capture)
        log.info("%s", described(deployment.capture))
