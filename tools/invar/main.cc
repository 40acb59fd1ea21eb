// invar: the command-line client and toolbox. Finds the command, hands over the rest of the line.
#include <cstdio>
#include <cstring>
#include <span>

#include "tools/invar/command.h"

namespace {

struct Command {
  const char* group;  // "" or "bench"
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

using namespace invar::tools;  // NOLINT: the table below is the only use.

constexpr Command kCommands[] = {
    {"", "generate", "send one request to a daemon and stream the answer", RunGenerate},
    {"", "chat", "chat with a daemon in the terminal", RunChat},
    {"", "admin", "see, flush and question a daemon's prefix cache", RunAdmin},
    {"", "logits", "logits of one token sequence, without a daemon", RunLogits},
    {"", "make-model", "write a random-weight model folder in a real shape", RunMakeModel},
    {"bench", "serve", "load a daemon and report latencies and throughput", RunBenchServe},
    {"bench", "prefix", "what a shared prefix saves, and what resuming costs", RunBenchPrefix},
    {"bench", "placement", "what a placement of checkpoints is worth on a workload", RunBenchPlacement},
    {"bench", "speculation", "what lossless speculation saves", RunBenchSpeculation},
    {"bench", "vericache", "what rounds over two tiers gain", RunBenchVericache},
    {"bench", "views", "what decoding on compressed KV gains", RunBenchViews},
    {"bench", "kernels", "kernels against this machine's limits", RunBenchKernels},
    {"bench", "model", "decode and prefill as shares of this machine's limits", RunBenchModel},
    {"bench", "tiers", "tiers of the prefix cache against this machine's limits", RunBenchTiers},
    {"", "plan", "where checkpoints of a prefix go, and what that saves", RunPlan},
    {"", "cache-sim", "replay a trace through the prefix cache, without a model", RunCacheSim},
    {"", "sim", "the whole engine in deterministic simulation", RunSim},
    {"", "stagger-sim", "speculation over two tiers on a simulated device", RunStaggerSim},
    {"", "eval", "what compressed views of KV lose on a model", RunEval},
    {"", "calibrate", "fit a pair of models for passing prefixes in codes", RunCalibrate},
    {"", "inspect", "say in words what is in a model, a disk tier or an .scd file", RunInspect},
    {"", "config", "explain every configuration field, check a file", RunConfig},
};

void PrintUsage(std::FILE* out) {
  std::fputs("usage: invar COMMAND [options]   (invar COMMAND --help explains one)\n\n", out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %s%s%-*s %s\n", command.group, *command.group == '\0' ? "" : " ",
                 *command.group == '\0' ? 17 : 11, command.name, command.summary);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    PrintUsage(stdout);
    return kExitOk;
  }
  for (const Command& command : kCommands) {
    const int words = *command.group == '\0' ? 1 : 2;
    if (argc <= words) continue;
    if (words == 2 && std::strcmp(argv[1], command.group) != 0) continue;
    if (std::strcmp(argv[words], command.name) == 0) return command.run(argc - words, argv + words);
  }
  PrintUsage(stderr);
  return kExitUsage;
}
