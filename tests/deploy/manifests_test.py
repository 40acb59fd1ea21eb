"""What is deployed fits together: manifests against the Kubernetes schema, alert rules against promtool, configurations against invard.
  manifests_test.py BIN_DIR PROMETHEUS_BIN_DIR
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BIN, PROMETHEUS_BIN = (pathlib.Path(p).resolve() for p in sys.argv[1:3])


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **options)


def documents(path):
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


class Kubernetes(unittest.TestCase):
    manifests = [p for p in sorted((DEPLOY / "k8s").glob("*.yaml")) if p.name != "kustomization.yaml"]

    def test_manifests_keep_the_schema(self):
        validate = pathlib.Path(sys.executable).parent / "kubernetes-validate"
        for path in self.manifests:
            done = run(validate, "-k", "1.33", "--strict", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_kustomization_names_every_manifest(self):
        listed = documents(DEPLOY / "k8s/kustomization.yaml")[0]["resources"]
        self.assertEqual(sorted(listed), [p.name for p in self.manifests])

    def test_ports_are_those_of_the_configuration(self):
        config_map = documents(DEPLOY / "k8s/configmap.yaml")[0]
        config = yaml.safe_load(config_map["data"]["invard.yaml"])
        container = documents(DEPLOY / "k8s/deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0]
        ports = {p["name"]: str(p["containerPort"]) for p in container["ports"]}
        self.assertEqual(ports["grpc"], config["server"]["listen"].rsplit(":")[-1])
        self.assertEqual(ports["ops"], config["ops"]["listen"].rsplit(":")[-1])
        self.assertEqual(str(container["readinessProbe"]["grpc"]["port"]), ports["grpc"])
        named = {p["targetPort"] for s in documents(DEPLOY / "k8s/services.yaml") for p in s["spec"]["ports"]}
        self.assertLessEqual(named, set(ports))

    def test_pods_are_killed_only_after_the_drain(self):
        config = yaml.safe_load(documents(DEPLOY / "k8s/configmap.yaml")[0]["data"]["invard.yaml"])
        pod = documents(DEPLOY / "k8s/deployment.yaml")[0]["spec"]["template"]["spec"]
        wait = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1])
        self.assertGreater(pod["terminationGracePeriodSeconds"], wait + int(config["drain"]["timeout"].rstrip("s")))


class Configurations(unittest.TestCase):
    def check(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            done = run(BIN / "invard", "--config", file.name, "--check-config")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_config_map_is_valid(self):
        self.check(documents(DEPLOY / "k8s/configmap.yaml")[0]["data"]["invard.yaml"])

    def test_configuration_of_the_image_is_valid(self):
        self.check((DEPLOY / "invard.yaml").read_text())

    def test_check_sees_an_unknown_key(self):
        with self.assertRaises(AssertionError):
            self.check("version: 1\nserver: {listn: '127.0.0.1:1'}\n")


class Prometheus(unittest.TestCase):
    def promtool(self, *arguments):
        done = run(PROMETHEUS_BIN / "promtool", *arguments, cwd=DEPLOY / "prometheus")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rules_and_configuration_are_valid(self):
        self.promtool("check", "rules", "alerts.yaml")
        self.promtool("check", "config", "prometheus.yml")

    def test_alerts_fire_and_stay_silent(self):
        self.promtool("test", "rules", "alerts_test.yaml")


class Containerfile(unittest.TestCase):
    text = (DEPLOY / "Containerfile").read_text()

    def test_entry_point_is_the_daemon_itself(self):
        self.assertIn('\nENTRYPOINT ["/usr/local/bin/invard"]\n', self.text)

    def test_runs_without_root(self):
        self.assertIn("\nUSER 10001:10001\n", self.text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
