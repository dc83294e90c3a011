"""The links by which gRPC calls reach the model servers of one archive, while these are ready."""

from collections.abc import Collection

from tfs_proxy.layout import Workspace


class InstanceGates:
    """The gates of ``count`` model servers; all are shut at first."""

    def __init__(self, workspace: Workspace, count: int) -> None:
        self._workspace = workspace
        self._count = count
        self._open: frozenset[int] = frozenset()

    def lead_to(self, instances: Collection[int]) -> None:
        """Open the gates of these model servers, and close all others.

        So no call reaches a model server before it has loaded its models, and nginx needs no reload.
        """
        for index in range(self._count):
            gate = self._workspace.grpc_gate(index)
            if index in instances and index not in self._open:
                gate.symlink_to(self._workspace.grpc_socket(index))
            elif index in self._open and index not in instances:
                gate.unlink()
        self._open = frozenset(instances)
