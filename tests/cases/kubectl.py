"""Run the real kubectl as a user does."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Kubectl"]


@dataclass(frozen=True)
class Kubectl:
    """The real kubectl, with a separate configuration and cache."""

    path: Path
    kubeconfig: Path
    home: Path

    def run(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; `text` is its standard input."""
        return subprocess.run(
            [str(self.path), *words],
            input=text,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self.home),
                "KUBECONFIG": str(self.kubeconfig),
                "KUBECACHEDIR": str(self.home / "cache"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def __call__(self, *words: str, text: str | None = None) -> str:
        """Run a command that must succeed without a warning, and return its output."""
        done = self.run(*words, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        assert not done.stderr, f"kubectl {' '.join(words)} printed a warning: {done.stderr}"
        return done.stdout

    def refused(self, *words: str, text: str | None = None) -> str:
        """Run a command that must fail, and return its errors."""
        done = self.run(*words, text=text)
        assert done.returncode != 0, f"kubectl {' '.join(words)} succeeded: {done.stdout}"
        return done.stderr
