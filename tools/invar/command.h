// One file a command, one line in main.cc's table.
#pragma once

namespace invar::tools {

// Exit codes all commands share.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitConfig = 78;  // EX_CONFIG of sysexits.h.

// argv[0] is the command's own name.
int RunAdmin(int argc, char** argv);
int RunGenerate(int argc, char** argv);
int RunChat(int argc, char** argv);
int RunLogits(int argc, char** argv);
int RunMakeModel(int argc, char** argv);
int RunBenchServe(int argc, char** argv);
int RunBenchPrefix(int argc, char** argv);
int RunBenchPlacement(int argc, char** argv);
int RunBenchSpeculation(int argc, char** argv);
int RunBenchVericache(int argc, char** argv);
int RunBenchViews(int argc, char** argv);
int RunBenchKernels(int argc, char** argv);
int RunBenchModel(int argc, char** argv);
int RunBenchTiers(int argc, char** argv);
int RunPlan(int argc, char** argv);
int RunCacheSim(int argc, char** argv);
int RunSim(int argc, char** argv);
int RunStaggerSim(int argc, char** argv);
int RunCalibrate(int argc, char** argv);
int RunEval(int argc, char** argv);
int RunInspect(int argc, char** argv);
int RunConfig(int argc, char** argv);

}  // namespace invar::tools
