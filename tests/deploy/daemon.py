"""Starts the real invard on the embedded model for a test and stops it with SIGTERM."""
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Daemon:
    """`with Daemon(bin_dir) as daemon:` gives `daemon.grpc` and `daemon.ops`, host:port each, and `daemon.process`."""

    def __init__(self, bin_dir, *arguments, model=ROOT / "assets/tiny-hybrid"):
        self.bin_dir = pathlib.Path(bin_dir)
        self.log = tempfile.TemporaryFile()
        command = [self.bin_dir / "invard", "--model", model, "--set", "server.listen=127.0.0.1:0"]
        command += ["--set", "ops.listen=127.0.0.1:0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            found = re.match(r"listening grpc=(\S+) ops=(\S+)", line)
            if found:
                self.grpc, self.ops = found.groups()
                return self.wait_until_ready()
        self.log.seek(0)
        raise RuntimeError("invard did not listen:\n" + self.log.read().decode())

    def wait_until_ready(self):
        """The ports open before the model is loaded; /readyz says when it is."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen("http://%s/readyz" % self.ops, timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("invard did not become ready")

    def generate(self, *arguments):
        """Runs `invar generate` and gives its stdout."""
        command = [self.bin_dir / "invar", "generate", "--server", self.grpc, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def stop(self):
        """SIGTERM, then the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
