"""A real Prometheus server scrapes a running invard: the target is up, numbers arrive, and every metric that the alerts and the
dashboard name is one the daemon exports.
  prometheus_test.py BIN_DIR PROMETHEUS_BIN_DIR
"""
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

import yaml

from daemon import ROOT, Daemon

BIN, PROMETHEUS_BIN = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
TOKENS = 5


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Scrape(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # With a tier: an alert looks at those.
        cls.daemon = Daemon(BIN, "--set", "cache.tiers.ram.budget=1MiB")
        cls.addClassCleanup(cls.daemon.stop)
        cls.daemon.generate("--text", "The function returns", "--max-tokens", str(TOKENS), "--temperature", "0")
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.start_prometheus()

    @classmethod
    def start_prometheus(cls):
        """The shipped configuration with this daemon as target and a short interval."""
        config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(ROOT / "deploy/prometheus/alerts.yaml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [cls.daemon.ops]}]
        path = pathlib.Path(cls.scratch.name, "prometheus.yml")
        path.write_text(yaml.safe_dump(config))
        address = "127.0.0.1:%d" % free_port()
        log = open(pathlib.Path(cls.scratch.name, "log"), "w+")
        cls.addClassCleanup(log.close)
        process = subprocess.Popen(
            [PROMETHEUS_BIN / "prometheus", "--config.file", path, "--web.listen-address", address,
             "--storage.tsdb.path", pathlib.Path(cls.scratch.name, "data"), "--log.level", "warn"],
            stdout=log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)
        cls.prometheus = "http://" + address

    def until(self, ask, what):
        """Asks again until the answer is true; the server needs a moment to start and to scrape."""
        last = None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                last = ask()
                if last:
                    return last
            except OSError as error:
                last = error
            time.sleep(0.1)
        self.fail("%s: %r" % (what, last))

    def query(self, expression):
        url = self.prometheus + "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        return json.loads(get(url))["data"]["result"]

    def test_target_is_up(self):
        def healths():
            targets = json.loads(get(self.prometheus + "/api/v1/targets"))["data"]["activeTargets"]
            return [t["health"] for t in targets] == ["up"]

        self.until(healths, "the target is not up")

    def test_numbers_arrive(self):
        result = self.until(lambda: self.query("invar_generated_tokens_total"), "no sample")
        self.assertEqual(float(result[0]["value"][1]), TOKENS)

    def test_rules_evaluate(self):
        def loaded():
            groups = json.loads(get(self.prometheus + "/api/v1/rules"))["data"]["groups"]
            rules = [r for g in groups for r in g["rules"]]
            return rules and all(r["health"] == "ok" for r in rules)

        self.until(loaded, "alert rules are not healthy")

    def test_alerts_and_dashboard_name_only_what_is_exported(self):
        exported = set(re.findall(r"^# TYPE (\S+)", get("http://%s/metrics" % self.daemon.ops), re.M))
        for path in ("deploy/prometheus/alerts.yaml", "deploy/grafana/invar.json"):
            for name in re.findall(r"\b(?:invar|process)_[a-z_]+\b", (ROOT / path).read_text()):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertTrue(name in exported or base in exported, "%s names %s" % (path, name))

    def test_native_names_pass_the_linter(self):
        text = get("http://%s/metrics" % self.daemon.ops)
        native = "\n".join(l for l in text.splitlines() if "vllm:" not in l) + "\n"
        done = subprocess.run([PROMETHEUS_BIN / "promtool", "check", "metrics"], input=native, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
