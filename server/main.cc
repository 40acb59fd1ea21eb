// invard: load the configuration, build the Daemon, run until told to stop (or to reload), drain. Nothing else.
// Exit codes: 0 clean, 1 failure, 2 usage, 78 bad configuration.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "config/load.h"
#include "server/calls/served_model.h"
#include "server/daemon.h"
#include "server/grpc_log.h"
#include "server/service_manager.h"
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

// What one thread tells another. Those of the end are made at the start: by then descriptors may have run out.
class Event {
 public:
  Event() { Check(fd_ >= 0, "the system gives an event descriptor", errno); }
  ~Event() { close(fd_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  int fd() const { return fd_; }
  void Raise() const {
    const uint64_t one = 1;
    Check(write(fd_, &one, sizeof(one)) == sizeof(one), "an event takes a one");
  }

 private:
  const int fd_ = eventfd(0, EFD_CLOEXEC);
};

struct EndEvents {
  Event persisted;
  Event gone;
};

void Take(const int event_fd) {
  uint64_t count = 0;
  Check(read(event_fd, &count, sizeof(count)) == sizeof(count), "an event that was raised can be taken");
}

// The next signal, -1 where `other_fd` spoke first, 0 where `timeout` (negative: for ever) passed.
// The event of `other_fd` is taken: what its raiser wrote before is there to be read.
constexpr int kOther = -1;
constexpr int kTimeout = 0;
constexpr std::chrono::milliseconds kForEver(-1);
int AwaitSignal(const int signal_fd, const int other_fd, const std::chrono::milliseconds timeout) {
  std::array<pollfd, 2> fds = {
      {{.fd = signal_fd, .events = POLLIN, .revents = 0}, {.fd = other_fd, .events = POLLIN, .revents = 0}}};
  int ready = 0;
  do {
    ready = poll(fds.data(), fds.size(), static_cast<int>(timeout.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return kTimeout;
  signalfd_siginfo info;
  if (fds[0].revents != 0 && read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
    return static_cast<int>(info.ssi_signo);
  }
  if (fds[1].revents != 0) Take(other_fd);
  return kOther;
}

// Blocks the signals that are meant for us in all threads to come and gives a descriptor that tells of them.
int TakeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A file at the limit of its size is an error to report (EFBIG), not an end.
  std::signal(SIGXFSZ, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

// What the main thread does while the daemon runs: takes signals and says to the service manager that all is well.
class Supervisor {
 public:
  Supervisor(const config::Sources& sources, server::Daemon& daemon, const int signal_fd)
      : sources_(sources), daemon_(daemon), signal_fd_(signal_fd) {}

  // From now on the service manager hears of us.
  void Ready() {
    ready_ = true;
    manager_.Ready();
  }
  void Stopping() const { manager_.Stopping(); }

  // Serves reloads and heartbeats until told to stop (true), or until `other_fd` speaks or `timeout` has passed.
  bool StopsWithin(const std::chrono::milliseconds timeout, const int other_fd = -1) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      std::chrono::milliseconds wait = timeout;
      if (timeout >= timeout.zero()) {
        wait = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        wait = std::max(wait, wait.zero());
      }
      const bool beats = ready_ && manager_.heartbeat_period() > wait.zero();
      if (beats) wait = wait < wait.zero() ? UntilHeartbeat() : std::min(wait, UntilHeartbeat());
      switch (AwaitSignal(signal_fd_, other_fd, wait)) {
        case SIGTERM:
        case SIGINT:
          return true;
        case SIGHUP:
          Reload();
          break;
        case kOther:
          return false;
        default:
          break;
      }
      if (beats && UntilHeartbeat() == wait.zero()) Beat();
      if (timeout >= timeout.zero() && std::chrono::steady_clock::now() >= end) return false;
    }
  }

 private:
  std::chrono::milliseconds UntilHeartbeat() const {
    const auto left = last_beat_ + manager_.heartbeat_period() - std::chrono::steady_clock::now();
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(0));
  }
  void Beat() {
    last_beat_ = std::chrono::steady_clock::now();
    if (const Status alive = daemon_.Alive(); alive.ok()) {
      manager_.Heartbeat();
    } else {
      Logger("server")->error("no heartbeat: {}", alive.message());
    }
  }
  void Reload() const {
    if (ready_) manager_.Reloading();
    const StatusOr<config::Loaded> wanted = config::Load(sources_);
    const Status status = wanted.ok() ? daemon_.Reload(*wanted) : wanted.status();
    if (!status.ok()) Logger("server")->error("reload refused, nothing has changed: {}", status.message());
    if (ready_) manager_.Ready();
  }

  const config::Sources& sources_;
  server::Daemon& daemon_;
  const int signal_fd_;
  const server::ServiceManager manager_ = server::ServiceManager::FromEnvironment();
  bool ready_ = false;
  std::chrono::steady_clock::time_point last_beat_;
};

// The grace for calls, and as much again each for the step under way and for giving memory back: within a second.
constexpr std::chrono::milliseconds kPatience = 3 * server::Daemon::kShutdownGrace;

[[noreturn]] void LeaveAtOnce() {
  Logger("server")->warn("stopped without waiting for what still ran");
  std::fflush(nullptr);
  _exit(kExitOk);
}

// The tiers store what only memory holds; a further signal ends that, and the process where even so it does not end: a
// model that is in the middle of a step.
void Persist(server::Daemon& daemon, Supervisor& supervisor, const Event& ended) {
  std::jthread persister([&](const std::stop_token& hurry) {
    daemon.Persist(hurry);
    ended.Raise();
  });
  if (!supervisor.StopsWithin(kForEver, ended.fd())) return;
  persister.request_stop();
  if (AwaitSignal(-1, ended.fd(), kPatience) == kTimeout) LeaveAtOnce();
}

// Ends the daemon, and the process with it where that takes too long: a model that is still loading, a call that does
// not let go.
int Leave(std::unique_ptr<server::Daemon> daemon, const Event& gone) {
  std::thread closer([&] {
    daemon.reset();
    gone.Raise();
  });
  if (AwaitSignal(-1, gone.fd(), kPatience) == kTimeout) LeaveAtOnce();
  closer.join();
  Logger("server")->info("stopped");
  return kExitOk;
}

int Run(const config::Sources& sources, const config::Loaded& loaded) {
  const config::Config& config = loaded.config;
  ConfigureLogs(config.log.format == "json" ? LogFormat::kJson : LogFormat::kText, config.log.level);
  server::RouteGrpcLogs();
  const int signal_fd = TakeSignals();
  const Event load_ended;
  const EndEvents ends;
  const RealClock clock;
  Status load_status;  // Written before the event, read after it.
  StatusOr<std::unique_ptr<server::Daemon>> started =
      server::Daemon::Start(loaded, server::LoadModelFolder, clock, [&](const Status& status) {
        load_status = status;
        load_ended.Raise();
      });
  if (!started.ok()) {
    std::fprintf(stderr, "invard: %s\n", started.status().message().c_str());
    return kExitFailure;
  }
  std::unique_ptr<server::Daemon> daemon = *std::move(started);
  Supervisor supervisor(sources, *daemon, signal_fd);
  if (supervisor.StopsWithin(kForEver, load_ended.fd())) {
    supervisor.Stopping();
    daemon->BeginDrain();
    return Leave(std::move(daemon), ends.gone);  // Loading cannot be interrupted, only left.
  }
  if (!load_status.ok()) {
    std::fprintf(stderr, "invard: cannot load the model: %s\n", load_status.message().c_str());
    return kExitFailure;
  }
  std::printf("listening grpc=%s ops=%s\n", daemon->grpc_address().c_str(), daemon->ops_address().c_str());
  std::fflush(stdout);
  supervisor.Ready();

  supervisor.StopsWithin(kForEver);
  supervisor.Stopping();
  daemon->BeginDrain();
  const auto drain_end = std::chrono::steady_clock::now() + daemon->config()->drain.timeout;
  // Short waits, so that a second signal is seen soon.
  while (!daemon->WaitIdle(std::chrono::milliseconds(20)) && std::chrono::steady_clock::now() < drain_end) {
    if (supervisor.StopsWithin(std::chrono::milliseconds(0))) return Leave(std::move(daemon), ends.gone);
  }
  Persist(*daemon, supervisor, ends.persisted);
  return Leave(std::move(daemon), ends.gone);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "invard: serves one model over gRPC (invar.v1), exact to the bit.\n"
      "Precedence: --set and --model > INVAR_SECTION__KEY > --config FILE > default.\n"
      "Prints `listening grpc=ADDR ops=ADDR` on stdout once the model serves; logs go to stderr.\n"
      "SIGTERM drains: running requests finish within drain.timeout, then the tiers of the prefix cache take what only "
      "memory holds, for drain.persist_timeout; a second one stops at once. SIGHUP reloads what docs/CONFIG.md marks. "
      "Exit: "
      "0, 1 failure, 2 usage, 78 bad "
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
  if (const Status status = loaded.ok() ? server::CheckCompressors(loaded->config) : loaded.status(); !status.ok()) {
    std::fprintf(stderr, "invard: %s\n", status.message().c_str());
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
  return Run(options.sources, *loaded);
}
