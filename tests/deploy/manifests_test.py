"""What is deployed fits together: manifests against the Kubernetes schema, alert rules against promtool, configurations against invard.
  manifests_test.py BIN_DIR PROMETHEUS_BIN_DIR
"""
import os
import pathlib
import re
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


def merged(base, patch):
    """As kustomize merges: mappings by key, lists of named things by name (volumeMounts: mountPath), others are replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merged(base[key], patch[key]) if key in base and key in patch else patch.get(key, base.get(key)) for key in {**base, **patch}}
    if isinstance(base, list) and isinstance(patch, list) and all(isinstance(x, dict) for x in base + patch):
        by = "mountPath" if any("mountPath" in x for x in base + patch) else "name"
        out = {x[by]: x for x in base}
        for x in patch:
            out[x[by]] = merged(out[x[by]], x) if x[by] in out else x
        return list(out.values())
    return patch


class Overlay:
    """What holds of a folder that is laid over k8s: `folder`, its `kustomization`, the merged `config_map` and `deployment`, and by
    kind the documents `added` to them."""

    def test_manifests_keep_the_schema(self):
        validate = pathlib.Path(sys.executable).parent / "kubernetes-validate"
        for document in [self.config_map, self.deployment, *self.added.values()]:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump(document, file)
                file.flush()
                done = run(validate, "-k", "1.33", "--strict", file.name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_kustomization_names_every_file(self):
        named = [*self.kustomization["resources"], *(p["path"] for p in self.kustomization["patches"]), "kustomization.yaml"]
        self.assertEqual(sorted(named), sorted(["../k8s", *(p.name for p in self.folder.glob("*.yaml"))]))


class KubernetesWithTiers(Overlay, unittest.TestCase):
    folder = DEPLOY / "k8s-tiers"
    kustomization = documents(DEPLOY / "k8s-tiers/kustomization.yaml")[0]
    config_map = merged(documents(DEPLOY / "k8s/configmap.yaml")[0], documents(folder / "configmap_patch.yaml")[0])
    deployment = merged(documents(DEPLOY / "k8s/deployment.yaml")[0], documents(folder / "deployment_patch.yaml")[0])
    added = valkey = {d["kind"]: d for d in documents(folder / "valkey.yaml")}

    def setUp(self):
        self.config = yaml.safe_load(self.config_map["data"]["invard.yaml"])
        self.tiers = self.config["cache"]["tiers"]
        self.pod = self.deployment["spec"]["template"]["spec"]

    def test_configuration_is_that_of_k8s_with_tiers(self):
        plain = yaml.safe_load(documents(DEPLOY / "k8s/configmap.yaml")[0]["data"]["invard.yaml"])
        self.assertEqual({k: v for k, v in self.config.items() if k != "cache"}, plain)

    def test_what_the_pod_had_it_still_has(self):
        base = documents(DEPLOY / "k8s/deployment.yaml")[0]["spec"]["template"]["spec"]
        for volume in base["volumes"]:
            self.assertIn(volume, self.pod["volumes"])
        for mount in base["containers"][0]["volumeMounts"]:
            self.assertIn(mount, self.pod["containers"][0]["volumeMounts"])
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])

    def test_tiers_are_where_something_is_mounted(self):
        mounts = {m["mountPath"]: m for m in self.pod["containers"][0]["volumeMounts"]}
        volumes = {v["name"]: v for v in self.pod["volumes"]}
        disk = mounts[str(pathlib.PurePosixPath(self.tiers["disk"]["path"]).parent)]
        self.assertFalse(disk.get("readOnly", False))
        size = volumes[disk["name"]]["emptyDir"]["sizeLimit"]
        self.assertGreater(int(size.removesuffix("Gi")), int(self.tiers["disk"]["budget"].removesuffix("GiB")))
        for field in ("password_file", "hmac_secret_file"):
            mount = mounts[str(pathlib.PurePosixPath(self.tiers["remote"][field]).parent)]
            self.assertIn("secret", volumes[mount["name"]])

    def test_pods_reach_the_server_and_nobody_else_does(self):
        host, port = self.tiers["remote"]["address"].rsplit(":", 1)
        service, server = self.valkey["Service"], self.valkey["Deployment"]["spec"]["template"]
        self.assertEqual((service["metadata"]["name"], service["spec"]["ports"][0]["port"]), (host, int(port)))
        container = server["spec"]["containers"][0]
        self.assertIn({"name": service["spec"]["ports"][0]["targetPort"], "containerPort": int(port)}, container["ports"])
        policy = self.valkey["NetworkPolicy"]["spec"]
        for selector in (service["spec"]["selector"], policy["podSelector"]["matchLabels"]):
            self.assertEqual(selector, server["metadata"]["labels"])
        ours = self.deployment["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(policy["ingress"][0]["from"], [{"podSelector": {"matchLabels": ours}}])

    def test_server_and_pods_read_the_same_secret(self):
        server = self.valkey["Deployment"]["spec"]["template"]["spec"]
        ours = next(v for v in self.pod["volumes"] if "secret" in v)["secret"]["secretName"]
        theirs = next(v for v in server["volumes"] if "secret" in v)["secret"]
        self.assertEqual(theirs["secretName"], ours)
        self.assertEqual([item["key"] for item in theirs["items"]], ["password"], "not what entries are authenticated with")
        for name in ("hmac", "password"):
            self.assertIn("--from-literal=%s=" % name, (self.folder / "kustomization.yaml").read_text())


class ComposeWithTiers(unittest.TestCase):
    compose = documents(DEPLOY / "compose.tiers.yaml")[0]
    tiers = documents(DEPLOY / "invard.tiers.yaml")[0]["cache"]["tiers"]

    def setUp(self):
        self.invard = self.compose["services"]["invard"]

    def test_configuration_is_that_of_the_image_with_tiers(self):
        config = documents(DEPLOY / "invard.tiers.yaml")[0]
        self.assertEqual({k: v for k, v in config.items() if k != "cache"}, documents(DEPLOY / "invard.yaml")[0])
        self.assertIn("./invard.tiers.yaml:/etc/invar/invard.yaml:ro", self.invard["volumes"])

    def test_the_disk_tier_lies_in_a_volume_that_the_image_gives_to_the_daemon(self):
        name, target = self.invard["volumes"][1].split(":")
        self.assertIn(name, self.compose["volumes"])
        self.assertEqual(str(pathlib.PurePosixPath(self.tiers["disk"]["path"]).parent), target)
        self.assertIn("install -d -o 10001 -g 10001 -m 0700 %s\n" % target, (DEPLOY / "Containerfile").read_text())

    def test_the_remote_tier_is_the_server_beside_and_secrets_are_mounted(self):
        host, port = self.tiers["remote"]["address"].rsplit(":", 1)
        self.assertIn(host, self.compose["services"])
        self.assertEqual(port, "6379")
        self.assertIn(host, self.invard["depends_on"])
        targets = {s["target"]: s["source"] for s in self.invard["secrets"]}
        for field, source in (("password_file", "password"), ("hmac_secret_file", "hmac")):
            self.assertEqual(targets[self.tiers["remote"][field]], source)
            self.assertIn(source, self.compose["secrets"])
        self.assertEqual([s["source"] for s in self.compose["services"][host]["secrets"]], ["password"])

    def test_adds_to_services_of_the_plain_one(self):
        self.assertIn("invard", documents(DEPLOY / "compose.yaml")[0]["services"])


class KubernetesOfAPair(Overlay, unittest.TestCase):
    folder = DEPLOY / "k8s-pair"
    kustomization = documents(folder / "kustomization.yaml")[0]
    config_map = merged(documents(DEPLOY / "k8s/configmap.yaml")[0], documents(folder / "configmap_patch.yaml")[0])
    deployment = merged(documents(DEPLOY / "k8s/deployment.yaml")[0], documents(folder / "deployment_patch.yaml")[0])
    added = prefill = {d["kind"]: d for d in documents(folder / "prefill.yaml")}

    def setUp(self):
        self.config = yaml.safe_load(self.config_map["data"]["invard.yaml"])
        self.prefill_config = yaml.safe_load(self.prefill["ConfigMap"]["data"]["invard.yaml"])
        self.pod = self.deployment["spec"]["template"]["spec"]
        self.prefill_pod = self.prefill["Deployment"]["spec"]["template"]

    def test_configuration_is_that_of_k8s_with_transfers(self):
        plain = yaml.safe_load(documents(DEPLOY / "k8s/configmap.yaml")[0]["data"]["invard.yaml"])
        self.assertEqual({k: v for k, v in self.config.items() if k != "transfer"}, plain)
        self.assertEqual({k: v for k, v in self.prefill_config.items() if k not in ("transfer", "auth")}, plain)

    def test_prefill_pods_are_those_of_k8s_but_for_what_they_need(self):
        base = documents(DEPLOY / "k8s/deployment.yaml")[0]["spec"]["template"]["spec"]
        ours, theirs = base["containers"][0], self.prefill_pod["spec"]["containers"][0]
        for key in ours:
            if key not in ("volumeMounts", "lifecycle"):
                self.assertEqual(theirs[key], ours[key], key)
        for mount in ours["volumeMounts"]:
            self.assertIn(mount, theirs["volumeMounts"])
        for key, value in base["securityContext"].items():
            self.assertEqual(self.prefill_pod["spec"]["securityContext"][key], value)

    def test_pods_are_killed_only_after_the_drain(self):
        pod = self.prefill_pod["spec"]
        wait = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1])
        self.assertGreater(pod["terminationGracePeriodSeconds"], wait + int(self.prefill_config["drain"]["timeout"].rstrip("s")))

    def test_decode_pods_look_up_the_headless_service_of_prefill_pods(self):
        name, address = self.config["transfer"]["producers"].split("=")
        self.assertEqual(name, self.prefill_config["transfer"]["name"])
        scheme, host, port = address.split(":")
        service = self.prefill["Service"]
        self.assertEqual((scheme, host, int(port)), ("dns", service["metadata"]["name"], service["spec"]["ports"][0]["port"]))
        self.assertEqual(service["spec"]["clusterIP"], "None")
        container = self.prefill_pod["spec"]["containers"][0]
        self.assertIn({"name": service["spec"]["ports"][0]["targetPort"], "containerPort": int(port)}, container["ports"])
        self.assertEqual(port, self.prefill_config["server"]["listen"].rsplit(":")[-1])

    def test_only_decode_pods_reach_prefill_pods(self):
        labels = self.prefill_pod["metadata"]["labels"]
        policy = self.prefill["NetworkPolicy"]["spec"]
        for selector in (policy["podSelector"]["matchLabels"], self.prefill["Service"]["spec"]["selector"],
                         self.prefill["Deployment"]["spec"]["selector"]["matchLabels"],
                         self.prefill["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
            self.assertEqual(selector, labels)
        ours = self.deployment["spec"]["template"]["metadata"]["labels"]
        self.assertNotEqual(ours, labels)
        self.assertEqual(policy["ingress"][0], {"from": [{"podSelector": {"matchLabels": ours}}], "ports": [{"port": "grpc"}]})
        self.assertEqual(policy["ingress"][1], {"ports": [{"port": "ops"}]})

    def test_both_read_the_same_secret_and_only_what_they_need(self):
        keys = {}
        for name, pod, config in (("decode", self.pod, self.config), ("prefill", self.prefill_pod["spec"], self.prefill_config)):
            volume = next(v for v in pod["volumes"] if "secret" in v)
            mount = next(m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
            self.assertTrue(mount["readOnly"])
            self.assertEqual(volume["secret"]["secretName"], "invar-pair")
            keys[name] = {item["key"] for item in volume["secret"]["items"]}
            files = {v for k, v in config["transfer"].items() if k.endswith("_file")}
            self.assertEqual(files, {mount["mountPath"] + "/" + key for key in keys[name]})
        self.assertEqual(keys, {"decode": {"token", "hmac"}, "prefill": {"hmac"}})
        env = self.prefill_pod["spec"]["containers"][0]["env"]
        self.assertEqual([(e["name"], e["valueFrom"]["secretKeyRef"]) for e in env],
                         [("INVAR_AUTH__TOKENS", {"name": "invar-pair", "key": "tokens"})])
        for key in ("token", "tokens", "hmac"):
            self.assertIn("--from-literal=%s=" % key, (self.folder / "kustomization.yaml").read_text())


class ComposeOfAPair(unittest.TestCase):
    compose = documents(DEPLOY / "compose.pair.yaml")[0]
    decode = documents(DEPLOY / "invard.pair.decode.yaml")[0]
    prefill = documents(DEPLOY / "invard.pair.prefill.yaml")[0]

    def test_configurations_are_that_of_the_image_with_transfers(self):
        plain = documents(DEPLOY / "invard.yaml")[0]
        for config in (self.decode, self.prefill):
            self.assertEqual({k: v for k, v in config.items() if k not in ("transfer", "auth")}, plain)

    def test_the_decode_instance_looks_up_the_service_beside(self):
        scheme, host, port = self.decode["transfer"]["producers"].split("=")[1].split(":")
        self.assertEqual((scheme, port), ("dns", self.prefill["server"]["listen"].rsplit(":")[-1]))
        self.assertIn(host, self.compose["services"])
        self.assertIn(host, self.compose["services"]["invard"]["depends_on"])

    def test_each_mounts_its_configuration_and_secrets(self):
        services = self.compose["services"]
        for service, file in (("invard", "decode"), ("prefill", "prefill")):
            self.assertIn("./invard.pair.%s.yaml:/etc/invar/invard.yaml:ro" % file, services[service]["volumes"])
        targets = {s["target"]: s["source"] for s in services["invard"]["secrets"]}
        self.assertIn(targets[self.decode["transfer"]["token_file"]], self.compose["secrets"])
        self.assertNotIn("secrets", services["prefill"])
        plain = documents(DEPLOY / "compose.yaml")[0]["services"]["invard"]
        for key in ("read_only", "cap_drop", "security_opt", "stop_grace_period", "image"):
            self.assertEqual(services["prefill"][key], plain[key], key)


class Configurations(unittest.TestCase):
    def check(self, text, environment=None):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            done = run(BIN / "invard", "--config", file.name, "--check-config", env={**os.environ, **(environment or {})})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_configurations_of_pairs_are_valid(self):
        self.check(documents(DEPLOY / "k8s-pair/configmap_patch.yaml")[0]["data"]["invard.yaml"])
        prefill = next(d for d in documents(DEPLOY / "k8s-pair/prefill.yaml") if d["kind"] == "ConfigMap")
        self.check(prefill["data"]["invard.yaml"], {"INVAR_AUTH__TOKENS": "decode:%s:instance" % ("0" * 64)})
        self.check((DEPLOY / "invard.pair.decode.yaml").read_text())
        self.check((DEPLOY / "invard.pair.prefill.yaml").read_text(), {"INVAR_AUTH__TOKENS": "decode:%s:instance" % ("0" * 64)})

    def test_config_map_is_valid(self):
        self.check(documents(DEPLOY / "k8s/configmap.yaml")[0]["data"]["invard.yaml"])

    def test_configurations_with_tiers_are_valid(self):
        self.check(documents(DEPLOY / "k8s-tiers/configmap_patch.yaml")[0]["data"]["invard.yaml"])
        self.check((DEPLOY / "invard.tiers.yaml").read_text())

    def test_configurations_of_a_prefill_and_a_decode_instance_are_valid(self):
        for name in ("invard.prefill.yaml", "invard.decode.yaml"):
            self.check((DEPLOY / name).read_text())

    def test_a_decode_instance_fetches_from_the_prefill_instance(self):
        prefill = documents(DEPLOY / "invard.prefill.yaml")[0]
        decode = documents(DEPLOY / "invard.decode.yaml")[0]
        self.assertEqual(decode["transfer"]["producers"].split("=")[1], prefill["server"]["listen"])
        self.assertEqual(decode["model"], prefill["model"])

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


class Containerfiles(unittest.TestCase):
    texts = {name: (DEPLOY / name).read_text() for name in ("Containerfile", "Containerfile.cuda")}

    def test_entry_point_is_the_daemon_itself(self):
        for text in self.texts.values():
            self.assertIn('\nENTRYPOINT ["/usr/local/bin/invard"]\n', text)

    def test_run_without_root(self):
        for text in self.texts.values():
            self.assertIn("\nUSER 10001:10001\n", text)

    def test_base_images_are_arguments(self):
        for text in self.texts.values():
            for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
                self.assertRegex(base, r"^\$\{[A-Z]+_BASE\}$")
                self.assertIn("\nARG %s=" % base[2:-1], text)

    def test_the_cuda_image_is_the_other_with_its_own_build(self):
        def promised(text):  # By the image, whatever is copied into it.
            return [line for line in text[text.index("FROM ${RUNTIME_BASE}"):].splitlines()
                    if not line.startswith(("COPY --from=build", "LABEL", "#", " #"))]
        plain, cuda = (promised(text) for text in self.texts.values())
        self.assertEqual([line for line in cuda if line not in plain],
                         ["RUN ldconfig", "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"])
        self.assertEqual([line for line in plain if line not in cuda], [])

    def test_the_cuda_image_has_the_module_where_the_programs_look(self):
        self.assertIn("libinvar_cuda.so /src/build/cublas/ /usr/local/lib/\n", self.texts["Containerfile.cuda"])
        self.assertIn('/ "lib" / kModuleFile', (ROOT / "kernels/cuda/open_module.cc").read_text())

    def test_the_cuda_images_configuration_asks_for_a_device(self):
        config = documents(DEPLOY / "invard.cuda.yaml")[0]
        self.assertEqual(config["engine"].pop("backend"), "auto")
        self.assertEqual(config, documents(DEPLOY / "invard.yaml")[0])

    def test_the_cuda_images_configuration_is_accepted(self):
        done = run(BIN / "invard", "--config", DEPLOY / "invard.cuda.yaml", "--check-config")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
