"""A pod of a Kubernetes manifest as containers of Docker: volumes, environment, rights and limits."""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


def docker(*words: str, check: bool = True, seconds: float = 300) -> str:
    """Run one docker command; what it printed, both streams."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["docker", *words], **both, text=True, timeout=seconds, check=False)  # type: ignore[call-overload] # noqa: S607
    if check and done.returncode:
        sys.exit(f"docker {' '.join(words)}: {done.stdout}")
    return str(done.stdout).strip()


def number(quantity: Any) -> float:
    """A quantity such as 1500Mi or 500m as a number."""
    digits, unit = re.findall(r"^([\d.]+)(\w*)$", str(quantity))[0]
    return float(digits) * UNITS[unit]


class Pod:
    """A pod that runs: a container that does nothing holds its network and its volumes."""

    def __init__(self, document: Any, given: argparse.Namespace, folder: Path) -> None:
        spec = document["spec"]
        self.spec = spec if "containers" in spec else spec["template"]["spec"]
        self.title = f"{document['kind']} {document['metadata']['name']}"
        self.once = document["kind"] == "Job"
        self.folder: Path = folder
        self.given, self.id = given, f"rendered-{uuid.uuid4().hex[:8]}"
        self.security = self.spec.get("securityContext", {})
        self.left_out: set[str] = set()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make network and volumes; take all away at the end."""
        self.volumes: dict[str, Path] = {
            each["name"]: self._volume(each) for each in self.spec.get("volumes", ())
        }
        memory = [each["name"] for each in self.spec.get("volumes", ()) if "emptyDir" in each]
        containers = self.spec["containers"]
        ports = [str(port["containerPort"]) for each in containers for port in each.get("ports", ())]
        words = [word for port in ports for word in ("-p", f"127.0.0.1::{port}")]
        words += [word for each in memory for word in ("-v", f"{self.id}-{each}:/{each}")]
        words += ["--add-host", "host.docker.internal:host-gateway", "--entrypoint", "sleep"]
        try:
            docker("run", "-d", "--name", self.id, *words, self.given.image or containers[0]["image"], "inf")
            yield
        finally:
            docker("rm", "-f", "-v", *docker("ps", "-aq", "--filter", f"name={self.id}").split(), check=False)
            docker("volume", "rm", *(f"{self.id}-{name}" for name in memory), check=False)

    def _volume(self, volume: Any) -> Path:
        """The folder that a volume is here; an emptyDir is one in memory, of its size."""
        name, group = volume["name"], self.security.get("fsGroup", 0)
        if "emptyDir" in volume:
            options = f"o=size={number(volume['emptyDir'].get('sizeLimit', '1Gi')):.0f},mode=2777,gid={group}"
            words = ["--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", options, f"{self.id}-{name}"]
            docker("volume", "create", *words)
            return Path(docker("volume", "inspect", "--format", "{{.Mountpoint}}", words[-1]))
        if "secret" in volume:
            source = volume["secret"]
            secret: Path = self.folder / self.id / name
            secret.mkdir(parents=True)
            for key, value in self._secret(source["secretName"], optional=source.get("optional")).items():
                file = secret / key
                file.write_bytes(value)
                os.chown(file, 0, group)
                file.chmod(source.get("defaultMode", 0o644) | 0o040)
            return secret
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        target = Path(self.given.volume.get(claim or name, self.folder / (claim or name))).resolve()
        if not target.exists():
            if claim is None:
                sys.exit(f"{self.title}: --volume {name}=FOLDER has to say what is in the volume {name}")
            target.mkdir()
            os.chown(target, -1, group)
            target.chmod(0o2775)
        return target

    def _secret(self, name: str, *, optional: bool | None = None) -> dict[str, bytes]:
        """The values of a Secret, from the folder that was given for it."""
        if name in self.given.secret:
            return {file.name: file.read_bytes() for file in Path(self.given.secret[name]).iterdir()}
        if not optional:
            sys.exit(f"{self.title}: --secret {name}=FOLDER has to give the Secret {name}")
        return {}

    def _mount(self, mount: Any) -> str:
        """One mount as docker's -v has it."""
        source = self.volumes[mount["name"]] / mount.get("subPath", "")
        return f"{source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"

    def _environment(self, container: Any) -> dict[str, str]:
        """The variables of a container, those of Secrets among them."""
        found: dict[str, str] = {}
        for each in container.get("envFrom", ()):
            reference = each["secretRef"]
            values = self._secret(reference["name"], optional=reference.get("optional"))
            found |= {name: value.decode() for name, value in values.items()}
        for each in container.get("env", ()):
            found[each["name"]] = str(each.get("value", "")).replace("{{.Name}}", self.given.name)
            if (reference := each.get("valueFrom", {}).get("secretKeyRef")) is not None:
                found[each["name"]] = self._secret(reference["name"])[reference["key"]].decode()
        found.update(self.given.env)
        return found

    def start(self, container: Any) -> str:
        """Start a container in the pod's network; its name."""
        security = {**self.security, **container.get("securityContext", {})}
        user = security.get("runAsUser", self.given.user)
        if security.get("runAsNonRoot") and not user:
            sys.exit(f"{self.title}: runAsNonRoot, and no runAsUser: the image's user is root")
        name, command = f"{self.id}-{container['name']}", container.get("command", [])
        words = [
            "--name",
            name,
            "--network",
            f"container:{self.id}",
            "--user",
            f"{user}:{security.get('runAsGroup', 0)}",
        ]
        words += ["--group-add", str(security["fsGroup"])] if "fsGroup" in security else []
        words += ["--read-only"] if security.get("readOnlyRootFilesystem") else []
        words += [
            word for each in security.get("capabilities", {}).get("drop", ()) for word in ("--cap-drop", each)
        ]
        if security.get("allowPrivilegeEscalation") is False:
            words += ["--security-opt", "no-new-privileges"]
        if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            words += ["--security-opt", "seccomp=unconfined"]
        for resource, most in container.get("resources", {}).get("limits", {}).items():
            if resource == "cpu":
                words += ["--cpus", str(min(number(most), os.cpu_count() or 1))]
            elif resource == "memory":
                words += ["--memory", f"{number(most):.0f}", "--memory-swap", f"{number(most):.0f}"]
            elif "/" in resource:
                self.left_out.add(f"{resource}: {most}")
        words += [word for each in container.get("volumeMounts", ()) for word in ("-v", self._mount(each))]
        words += [word for each in self.given.mount.items() for word in ("-v", f"{each[1]}:{each[0]}:ro")]
        words += [word for each in self._environment(container).items() for word in ("-e", "=".join(each))]
        words += ["--entrypoint", command[0]] if command else []
        docker(
            "run",
            "-d",
            *words,
            self.given.image or container["image"],
            *command[1:],
            *container.get("args", ()),
        )
        return name

    def address(self, container: Any, port: int | str) -> str:
        """Where a container's port is reached from here, by number or name."""
        named = {each.get("name"): each["containerPort"] for each in container["ports"]}
        return docker("port", self.id, str(named.get(port, port))).splitlines()[0]
