// Renders chat requests for comparison with jinja2: tools/oracle/text/compare_templates.py drives it.
// Usage: render_lines MODEL_FOLDER. Each input line is a JSON object with `messages` (role, content, and so on),
// `tools`, `options`, `add_generation_prompt` and `now`; each output line is a JSON object with `text` or `error`.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "models/text.h"
#include "tests/models/text/chat_json.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto chat_template = invar::models::LoadChatTemplate(argv[1]);
  if (!chat_template.ok() || *chat_template == nullptr) {
    std::cerr << (chat_template.ok() ? "no template" : chat_template.status().ToString()) << '\n';
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto json = nlohmann::ordered_json::parse(line);
    nlohmann::json answer;
    const auto pieces = (*chat_template)->Render(invar::models::RequestFromJson(json), invar::models::kTestLimits);
    if (pieces.ok()) {
      answer["text"] = invar::models::JoinPieces(*pieces);
    } else {
      answer["error"] = pieces.status().message();
    }
    std::cout << answer.dump() << '\n';
  }
}
