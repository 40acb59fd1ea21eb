// invard: load the configuration, build the Daemon, run until told to stop, drain. Nothing else.
// Exit codes: 0 clean, 1 failure, 2 usage, 78 bad configuration.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "config/load.h"
#include "server/daemon.h"
#include "server/version.h"

namespace {

using namespace invar;  // NOLINT: the program's own file.

constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitConfig = 78;  // EX_CONFIG of sysexits.h.

struct Options {
  config::Sources sources;
  bool check_config = false;
  bool print_config = false;
  bool print_default_config = false;
  bool version = false;
};

// Waits for the next stop signal or for `other_fd`, at most `timeout_ms` (-1: for ever).
enum class Wake { kSignal, kOther, kTimeout };
Wake WaitFor(const int signal_fd, const int other_fd, const int timeout_ms) {
  std::array<pollfd, 2> fds = {
      {{.fd = signal_fd, .events = POLLIN, .revents = 0}, {.fd = other_fd, .events = POLLIN, .revents = 0}}};
  int ready = 0;
  do {
    ready = poll(fds.data(), fds.size(), timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return Wake::kTimeout;
  if (fds[0].revents != 0) {
    signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof(info)) == sizeof(info)) return Wake::kSignal;
  }
  return Wake::kOther;
}

void Raise(const int event_fd) {
  const uint64_t one = 1;
  Check(write(event_fd, &one, sizeof(one)) == sizeof(one), "an event takes a one");
}

// Blocks the stop signals in all threads to come and gives a descriptor that tells of them.
int TakeStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

// Ends the daemon, and the process with it where that takes too long: a model that is still loading, a call that does
// not let go.
int Leave(std::unique_ptr<server::Daemon> daemon) {
  // The grace for calls, and as much again each for the step under way and for giving memory back: within a second.
  constexpr int kPatienceMs = 3 * static_cast<int>(server::Daemon::kShutdownGrace.count());
  const int gone_fd = eventfd(0, EFD_CLOEXEC);
  std::thread closer([&] {
    daemon.reset();
    Raise(gone_fd);
  });
  if (WaitFor(-1, gone_fd, kPatienceMs) == Wake::kOther) {
    closer.join();
    Logger("server")->info("stopped");
    return kExitOk;
  }
  Logger("server")->warn("stopped without waiting for what still ran");
  std::fflush(nullptr);
  _exit(kExitOk);
}

int Run(const config::Config& config) {
  ConfigureLogs(config.log.format == "json" ? LogFormat::kJson : LogFormat::kText, config.log.level);
  const int signal_fd = TakeStopSignals();
  const int loaded_fd = eventfd(0, EFD_CLOEXEC);
  const RealClock clock;
  Status load_status;  // Written before the event, read after it.
  StatusOr<std::unique_ptr<server::Daemon>> started =
      server::Daemon::Start(config, server::LoadModelFolder, clock, [&](const Status& status) {
        load_status = status;
        Raise(loaded_fd);
      });
  if (!started.ok()) {
    std::fprintf(stderr, "invard: %s\n", started.status().message().c_str());
    return kExitFailure;
  }
  std::unique_ptr<server::Daemon> daemon = *std::move(started);
  if (WaitFor(signal_fd, loaded_fd, -1) == Wake::kSignal) {
    daemon->BeginDrain();
    return Leave(std::move(daemon));  // Loading cannot be interrupted, only left.
  }
  if (!load_status.ok()) {
    std::fprintf(stderr, "invard: cannot load the model: %s\n", load_status.message().c_str());
    return kExitFailure;
  }
  std::printf("listening grpc=%s ops=%s\n", daemon->grpc_address().c_str(), daemon->ops_address().c_str());
  std::fflush(stdout);

  WaitFor(signal_fd, -1, -1);
  daemon->BeginDrain();
  const auto drain_end = std::chrono::steady_clock::now() + config.drain.timeout;
  // Short waits, so that a second signal is seen soon.
  while (!daemon->WaitIdle(std::chrono::milliseconds(20)) && std::chrono::steady_clock::now() < drain_end) {
    if (WaitFor(signal_fd, -1, 0) == Wake::kSignal) break;
  }
  return Leave(std::move(daemon));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "invard: serves one model over gRPC (invar.v1), exact to the bit.\n"
      "Precedence: --set and --model > INVAR_SECTION__KEY > --config FILE > default.\n"
      "Prints `listening grpc=ADDR ops=ADDR` on stdout once the model serves; logs go to stderr.\n"
      "SIGTERM drains: running requests finish within drain.timeout. Exit: 0, 1 failure, 2 usage, 78 bad "
      "configuration.");
  app.add_option("--config", options.sources.file, "YAML configuration; every field: docs/CONFIG.md");
  app.add_option("--model", options.sources.model, "Folder of the model: short for --set model.path=DIR");
  app.add_option("--set", options.sources.sets, "key.path=value, over everything else; may be repeated")
      ->expected(1)
      ->take_all();
  app.add_flag("--check-config", options.check_config, "Check the configuration and exit: 0, or 78");
  app.add_flag("--print-config", options.print_config, "Print every value with its origin and exit");
  app.add_flag("--print-default-config", options.print_default_config, "Print a configuration to start from and exit");
  app.add_flag("--version", options.version, "Print the version and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? kExitOk : kExitUsage;
  }
  if (options.version) {
    std::printf("invard %s\n", server::kVersion);
    return kExitOk;
  }
  if (options.print_default_config) {
    std::fputs(config::PrintDefaultConfig().c_str(), stdout);
    return kExitOk;
  }
  options.sources.environment = config::InvarEnvironment(environ);
  const StatusOr<config::Loaded> loaded = config::Load(options.sources);
  if (!loaded.ok()) {
    std::fprintf(stderr, "invard: %s\n", loaded.status().message().c_str());
    return kExitConfig;
  }
  if (options.print_config) {
    std::fputs(config::PrintConfig(*loaded).c_str(), stdout);
    return kExitOk;
  }
  if (options.check_config) {
    std::puts("configuration is valid");
    return kExitOk;
  }
  if (loaded->config.model.path.empty()) {
    std::fputs("invard: model.path: which model? Give --model DIR, or set model.path\n", stderr);
    return kExitConfig;
  }
  return Run(loaded->config);
}
