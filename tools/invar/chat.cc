// invar chat: talk to a daemon in the terminal. Keeps the conversation and sends all of it each turn, as chat templates
// expect. Without a terminal it reads one user turn a line and prints the answers only.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

struct Options {
  ClientOptions client;
  AnswerOptions answer;
  std::string system;
};

void AddMessage(v1::Chat& chat, const std::string& role, const std::string& content) {
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role(role);
  message.set_content(content);
}

class Conversation {
 public:
  explicit Conversation(const Options& options) : options_(options) { Clear(); }

  void Clear() {
    chat_.Clear();
    if (!options_.system.empty()) AddMessage(chat_, "system", options_.system);
  }

  // Streams the answer to `text` and remembers both; forgets both where the call fails.
  bool Turn(v1::GenerationService::Stub& stub, const std::string& text) {
    v1::GenerateRequest request;
    *request.mutable_chat() = chat_;
    AddMessage(*request.mutable_chat(), "user", text);
    FillAnswer(options_.answer, request);
    request.set_stream(true);
    std::string answer;
    const grpc::Status status = Stream(stub, options_.client, request, [&](const v1::GenerateResponse& response) {
      answer += TextOf(response);
      std::fputs(TextOf(response).c_str(), stdout);
      return std::fflush(stdout) == 0;
    });
    std::fputc('\n', stdout);
    if (!status.ok()) {
      PrintError("chat", status);
      return false;
    }
    AddMessage(chat_, "user", text);
    AddMessage(chat_, "assistant", answer);
    return true;
  }

 private:
  const Options& options_;
  v1::Chat chat_;
};

int Run(const Options& options) {
  const auto stub = Connect(options.client);
  if (stub == nullptr) return kExitFailure;
  const bool interactive = isatty(STDIN_FILENO) != 0;
  if (interactive) std::puts("Type a message; /new begins again, /quit or Ctrl-D leaves.");
  Conversation conversation(options);
  bool all_good = true;
  std::string line;
  for (;;) {
    if (interactive) {
      std::fputs("> ", stdout);
      std::fflush(stdout);
    }
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line.empty()) continue;
    if (line == "/new") {
      conversation.Clear();
      continue;
    }
    all_good = conversation.Turn(*stub, line) && all_good;
    if (!all_good && !interactive) break;
  }
  return all_good || interactive ? kExitOk : kExitFailure;
}

}  // namespace

int RunChat(const int argc, char** argv) {
  CLI::App app("Chats with a daemon in the terminal", "invar chat");
  Options options;
  AddClientOptions(app, options.client);
  AddAnswerOptions(app, options.answer);
  app.add_option("--system", options.system, "System message");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return Run(options);
}

}  // namespace invar::tools
