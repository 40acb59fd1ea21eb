// Recursive descent over the tokens. The first error is kept and the position jumps to the end, so that every loop
// stops; each level of recursion is counted, so that a hostile source cannot overflow the stack.
#include "models/text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/lexer.h"

namespace invar::models::jinja {
namespace {

using Kind = Token::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  StatusOr<Body> Run() {
    Body body = ParseBody({});
    if (!status_.ok()) return status_;
    return body;
  }

 private:
  // Counts recursion for as long as it lives.
  class Level {
   public:
    explicit Level(Parser* parser) : parser_(parser) {
      if (++parser_->depth_ > kMaxHeight) parser_->Fail("nested deeper than " + std::to_string(kMaxHeight));
    }
    ~Level() { --parser_->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser* parser_;
  };

  const Token& Now() const { return tokens_[at_]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument("chat template line " + std::to_string(Now().line) + ": " + what);
    at_ = tokens_.size() - 1;
  }
  bool IsName(const std::string_view name) const { return Now().kind == Kind::kName && Now().text == name; }
  bool IsOperator(const std::string_view op) const { return Now().kind == Kind::kOperator && Now().text == op; }
  bool TakeName(const std::string_view name) {
    if (!IsName(name)) return false;
    Next();
    return true;
  }
  bool TakeOperator(const std::string_view op) {
    if (!IsOperator(op)) return false;
    Next();
    return true;
  }
  void ExpectOperator(const std::string& op) {
    if (!TakeOperator(op)) Fail("wanted '" + op + "', found " + Describe());
  }
  void Expect(const Kind kind, const std::string& what) {
    if (Now().kind != kind) return Fail("wanted " + what + ", found " + Describe());
    Next();
  }
  std::string Describe() const;
  std::string Identifier();

  ExprPtr Make(Expr::Kind kind, std::string name = {}) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = Now().line;
    expr->name = std::move(name);
    return expr;
  }
  // Adds a child and keeps the height.
  void AddArg(Expr& parent, ExprPtr child) {
    if (child != nullptr) Raise(parent, *child);
    parent.args.push_back(std::move(child));
  }
  void Raise(Expr& parent, const Expr& child) {
    parent.height = std::max(parent.height, child.height + 1);
    // A long chain of operators is as deep a tree as so many brackets.
    if (parent.height > 2 * kMaxHeight) Fail("expression nested deeper than " + std::to_string(2 * kMaxHeight));
  }

  Body ParseBody(std::initializer_list<std::string_view> ends);
  std::unique_ptr<Stmt> ParseStatement();
  void ParseIf(Stmt& stmt);
  void ParseFor(Stmt& stmt);
  void ParseSet(Stmt& stmt);
  void ParseMacro(Stmt& stmt);
  void ParseWith(Stmt& stmt);
  void ParseEnd(const std::string& tag);
  Target ParseTarget(bool attribute_allowed);

  ExprPtr ParseTuple();
  ExprPtr ParseExpression();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParsePostfix(ExprPtr expr);
  ExprPtr ParseFilters(ExprPtr expr);
  ExprPtr ParseSubscript(ExprPtr object);
  ExprPtr ParseSubscriptIndex(ExprPtr object);
  ExprPtr ParseFilter(ExprPtr input);
  ExprPtr ParseTest(ExprPtr input);
  ExprPtr ParseBrackets();
  ExprPtr ParseDict();
  ExprPtr ParseNumber();
  void ParseArguments(Expr& call);
  ExprPtr Binary(Expr::Kind kind, std::string name, ExprPtr left, ExprPtr right);

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;   // Enclosing for-loops of this macro,
  int scopes_ = 0;  // and anything else that makes a scope.
  Status status_;
};

std::string Parser::Describe() const {
  switch (Now().kind) {
    case Kind::kData:
    case Kind::kEnd:
      return "end of template";
    case Kind::kVariableEnd:
      return "end of print statement";
    case Kind::kBlockEnd:
      return "end of statement block";
    default:
      return "'" + Now().text + "'";
  }
}

std::string Parser::Identifier() {
  if (Now().kind != Kind::kName) {
    Fail("wanted a name, found " + Describe());
    return {};
  }
  std::string name = Now().text;
  Next();
  return name;
}

// ------------------------------------------------------------------------------------------------ statements

// Statements up to a tag named in `ends`, whose name is then the current token.
Body Parser::ParseBody(const std::initializer_list<std::string_view> ends) {
  const Level level(this);
  Body body;
  while (Now().kind != Kind::kEnd) {
    auto stmt = std::make_unique<Stmt>();
    stmt->line = Now().line;
    if (Now().kind == Kind::kData) {
      stmt->kind = Stmt::Kind::kData;
      stmt->text = Now().text;
      Next();
    } else if (Now().kind == Kind::kVariableBegin) {
      Next();
      stmt->kind = Stmt::Kind::kOutput;
      stmt->expr = ParseTuple();
      Expect(Kind::kVariableEnd, "}}");
    } else {
      Expect(Kind::kBlockBegin, "a tag");
      if (std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return IsName(end); })) return body;
      stmt = ParseStatement();
    }
    if (status_.ok()) body.push_back(std::move(stmt));
  }
  if (ends.size() > 0) Fail("template ends where {% " + std::string(*(ends.end() - 1)) + " %} is wanted");
  return body;
}

std::unique_ptr<Stmt> Parser::ParseStatement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->line = Now().line;
  const std::string tag = Identifier();
  if (tag == "if") {
    ParseIf(*stmt);
  } else if (tag == "for") {
    ParseFor(*stmt);
  } else if (tag == "set") {
    ParseSet(*stmt);
  } else if (tag == "macro") {
    ParseMacro(*stmt);
  } else if (tag == "with") {
    ParseWith(*stmt);
  } else if (tag == "generation") {
    stmt->kind = Stmt::Kind::kGroup;
    Expect(Kind::kBlockEnd, "%}");
    stmt->body = ParseBody({"endgeneration"});
    ParseEnd("endgeneration");
  } else if (tag == "break" || tag == "continue") {
    stmt->kind = tag == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
    if (loops_ == 0) Fail("'" + tag + "' outside of a loop");
    Expect(Kind::kBlockEnd, "%}");
  } else {
    Fail("tag '" + tag + "' is not supported");
  }
  return stmt;
}

void Parser::ParseEnd(const std::string& tag) {
  if (!TakeName(tag)) Fail("wanted " + tag + ", found " + Describe());
  Expect(Kind::kBlockEnd, "%}");
}

void Parser::ParseIf(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kIf;
  for (;;) {
    ExprPtr condition = ParseTuple();
    Expect(Kind::kBlockEnd, "%}");
    Body body = ParseBody({"elif", "else", "endif"});
    stmt.branches.emplace_back(std::move(condition), std::move(body));
    if (!TakeName("elif")) break;
  }
  if (TakeName("else")) {
    Expect(Kind::kBlockEnd, "%}");
    stmt.else_body = ParseBody({"endif"});
  }
  ParseEnd("endif");
}

void Parser::ParseFor(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kFor;
  stmt.target = ParseTarget(false);
  if (!TakeName("in")) Fail("wanted 'in', found " + Describe());
  // Without a conditional: `for x in xs if y` is a filter.
  ExprPtr iterable = ParseOr();
  if (IsOperator(",")) {
    ExprPtr tuple = Make(Expr::Kind::kTuple);
    AddArg(*tuple, std::move(iterable));
    while (TakeOperator(",")) AddArg(*tuple, ParseOr());
    iterable = std::move(tuple);
  }
  stmt.expr = std::move(iterable);
  if (TakeName("if")) stmt.condition = ParseExpression();
  if (IsName("recursive")) Fail("recursive loops are not supported");
  Expect(Kind::kBlockEnd, "%}");
  ++loops_;
  ++scopes_;
  stmt.body = ParseBody({"else", "endfor"});
  --loops_;
  --scopes_;
  if (TakeName("else")) {
    Expect(Kind::kBlockEnd, "%}");
    ++scopes_;
    stmt.else_body = ParseBody({"endfor"});
    --scopes_;
  }
  ParseEnd("endfor");
}

void Parser::ParseSet(Stmt& stmt) {
  stmt.target = ParseTarget(true);
  if (TakeOperator("=")) {
    stmt.kind = Stmt::Kind::kSet;
    stmt.expr = ParseTuple();
    return Expect(Kind::kBlockEnd, "%}");
  }
  stmt.kind = Stmt::Kind::kSetBlock;
  if (IsOperator("|")) Fail("filters on a set block are not supported");
  if (stmt.target.unpack) Fail("a set block assigns to one name");
  Expect(Kind::kBlockEnd, "%}");
  ++scopes_;
  stmt.body = ParseBody({"endset"});
  --scopes_;
  ParseEnd("endset");
}

void Parser::ParseMacro(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kMacro;
  // A macro sees the scope it is defined in; only the outermost scope outlives every call.
  if (scopes_ > 0) Fail("a macro inside a loop, block or macro is not supported");
  stmt.name = Identifier();
  ExpectOperator("(");
  while (!IsOperator(")") && status_.ok()) {
    stmt.parameters.push_back(Identifier());
    if (TakeOperator("=")) {
      stmt.defaults.push_back(ParseExpression());
    } else if (!stmt.defaults.empty()) {
      Fail("a parameter without default follows one with a default");
    }
    if (!TakeOperator(",")) break;
  }
  ExpectOperator(")");
  Expect(Kind::kBlockEnd, "%}");
  const int loops = std::exchange(loops_, 0);
  ++scopes_;
  stmt.body = ParseBody({"endmacro"});
  --scopes_;
  loops_ = loops;
  ParseEnd("endmacro");
}

void Parser::ParseWith(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kScope;
  while (Now().kind == Kind::kName) {
    std::string name = Identifier();
    ExpectOperator("=");
    stmt.named.emplace_back(std::move(name), ParseExpression());
    if (!TakeOperator(",")) break;
  }
  Expect(Kind::kBlockEnd, "%}");
  ++scopes_;
  stmt.body = ParseBody({"endwith"});
  --scopes_;
  ParseEnd("endwith");
}

Target Parser::ParseTarget(const bool attribute_allowed) {
  Target target;
  const bool bracket = TakeOperator("(");
  target.names.push_back(Identifier());
  if (attribute_allowed && !bracket && TakeOperator(".")) {
    target.attribute = Identifier();
    return target;
  }
  while (TakeOperator(",")) {
    target.unpack = true;
    if (Now().kind != Kind::kName || IsName("in")) break;
    target.names.push_back(Identifier());
  }
  if (bracket) ExpectOperator(")");
  for (const std::string& name : target.names) {
    if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None") {
      Fail("cannot assign to '" + name + "'");
    }
  }
  return target;
}

// ------------------------------------------------------------------------------------------------ expressions

ExprPtr Parser::Binary(const Expr::Kind kind, std::string name, ExprPtr left, ExprPtr right) {
  ExprPtr expr = Make(kind, std::move(name));
  AddArg(*expr, std::move(left));
  AddArg(*expr, std::move(right));
  return expr;
}

// An expression, or several as a tuple.
ExprPtr Parser::ParseTuple() {
  ExprPtr first = ParseExpression();
  if (!IsOperator(",")) return first;
  ExprPtr tuple = Make(Expr::Kind::kTuple);
  AddArg(*tuple, std::move(first));
  while (TakeOperator(",")) {
    if (Now().kind == Kind::kVariableEnd || Now().kind == Kind::kBlockEnd || IsOperator(")")) break;
    AddArg(*tuple, ParseExpression());
  }
  return tuple;
}

ExprPtr Parser::ParseExpression() {
  const Level level(this);
  ExprPtr expr = ParseOr();
  while (TakeName("if")) {
    ExprPtr conditional = Make(Expr::Kind::kConditional);
    AddArg(*conditional, std::move(expr));
    AddArg(*conditional, ParseOr());
    AddArg(*conditional, TakeName("else") ? ParseExpression() : nullptr);
    expr = std::move(conditional);
  }
  return expr;
}

ExprPtr Parser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (TakeName("or")) left = Binary(Expr::Kind::kOr, "", std::move(left), ParseAnd());
  return left;
}

ExprPtr Parser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (TakeName("and")) left = Binary(Expr::Kind::kAnd, "", std::move(left), ParseNot());
  return left;
}

ExprPtr Parser::ParseNot() {
  const Level level(this);
  if (!TakeName("not")) return ParseCompare();
  ExprPtr expr = Make(Expr::Kind::kNot);
  AddArg(*expr, ParseNot());
  return expr;
}

ExprPtr Parser::ParseCompare() {
  ExprPtr left = ParseSum();
  ExprPtr chain;
  const auto add = [&](std::string op) {
    if (chain == nullptr) {
      chain = Make(Expr::Kind::kCompare);
      AddArg(*chain, std::move(left));
    }
    chain->names.push_back(std::move(op));
    AddArg(*chain, ParseSum());
  };
  for (;;) {
    const std::string op = Now().text;
    if (Now().kind == Kind::kOperator &&
        (op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=")) {
      Next();
      add(op);
    } else if (TakeName("in")) {
      add("in");
    } else if (IsName("not") && tokens_[at_ + 1].kind == Kind::kName && tokens_[at_ + 1].text == "in") {
      Next();
      Next();
      add("not in");
    } else {
      return chain != nullptr ? std::move(chain) : std::move(left);
    }
  }
}

ExprPtr Parser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    const std::string op = Now().text;
    Next();
    left = Binary(Expr::Kind::kBinary, op, std::move(left), ParseConcat());
  }
  return left;
}

ExprPtr Parser::ParseConcat() {
  ExprPtr left = ParseProduct();
  while (TakeOperator("~")) left = Binary(Expr::Kind::kBinary, "~", std::move(left), ParseProduct());
  return left;
}

ExprPtr Parser::ParseProduct() {
  ExprPtr left = ParsePower();
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const std::string op = Now().text;
    Next();
    left = Binary(Expr::Kind::kBinary, op, std::move(left), ParsePower());
  }
  return left;
}

ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary(true);
  while (TakeOperator("**")) left = Binary(Expr::Kind::kBinary, "**", std::move(left), ParseUnary(true));
  return left;
}

ExprPtr Parser::ParseUnary(const bool with_filter) {
  const Level level(this);
  ExprPtr expr;
  if (IsOperator("-") || IsOperator("+")) {
    expr = Make(IsOperator("-") ? Expr::Kind::kNegate : Expr::Kind::kPlus);
    Next();
    AddArg(*expr, ParseUnary(false));
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  return with_filter ? ParseFilters(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::ParseNumber() {
  ExprPtr expr = Make(Expr::Kind::kConstant);
  const std::string& text = Now().text;
  if (Now().kind == Kind::kFloat) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    expr->constant = Value::Of(value);
  } else {
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) Fail("integer out of range");
    expr->constant = Value::Of(value);
  }
  Next();
  return expr;
}

ExprPtr Parser::ParsePrimary() {
  if (Now().kind == Kind::kInteger || Now().kind == Kind::kFloat) return ParseNumber();
  if (Now().kind == Kind::kString) {
    ExprPtr expr = Make(Expr::Kind::kConstant);
    std::string text;
    while (Now().kind == Kind::kString) {  // Neighbouring literals are one string.
      text += Now().text;
      Next();
    }
    expr->constant = Value::OfTemplate(text);
    return expr;
  }
  if (Now().kind == Kind::kName) {
    ExprPtr expr = Make(Expr::Kind::kConstant);
    const std::string name = Identifier();
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      expr->constant = Value::Of(name == "true" || name == "True");
    } else if (name == "none" || name == "None") {
      expr->constant = Value::OfNone();
    } else {
      expr->kind = Expr::Kind::kName;
      expr->name = name;
    }
    return expr;
  }
  if (IsOperator("(") || IsOperator("[")) return ParseBrackets();
  if (IsOperator("{")) return ParseDict();
  Fail("unexpected " + Describe());
  return Make(Expr::Kind::kConstant);
}

// (a), (a, b) or [a, b].
ExprPtr Parser::ParseBrackets() {
  const Level level(this);
  const bool list = IsOperator("[");
  const std::string close = list ? "]" : ")";
  Next();
  ExprPtr expr = Make(list ? Expr::Kind::kList : Expr::Kind::kTuple);
  bool comma = false;
  while (!IsOperator(close) && status_.ok()) {
    AddArg(*expr, ParseExpression());
    if (!TakeOperator(",")) break;
    comma = true;
  }
  ExpectOperator(close);
  if (!list && !comma && expr->args.size() == 1) return std::move(expr->args.front());
  return expr;
}

ExprPtr Parser::ParseDict() {
  const Level level(this);
  Next();
  ExprPtr expr = Make(Expr::Kind::kDict);
  while (!IsOperator("}") && status_.ok()) {
    AddArg(*expr, ParseExpression());
    ExpectOperator(":");
    AddArg(*expr, ParseExpression());
    if (!TakeOperator(",")) break;
  }
  ExpectOperator("}");
  return expr;
}

// .name, [index], (arguments)
ExprPtr Parser::ParsePostfix(ExprPtr expr) {
  for (;;) {
    if (IsOperator(".") || IsOperator("[")) {
      expr = ParseSubscript(std::move(expr));
    } else if (IsOperator("(")) {
      ExprPtr call = Make(Expr::Kind::kCall);
      AddArg(*call, std::move(expr));
      ParseArguments(*call);
      expr = std::move(call);
    } else {
      return expr;
    }
  }
}

// |filter, is test, and calls of what they give.
ExprPtr Parser::ParseFilters(ExprPtr expr) {
  for (;;) {
    if (TakeOperator("|")) {
      expr = ParseFilter(std::move(expr));
    } else if (TakeName("is")) {
      expr = ParseTest(std::move(expr));
    } else if (IsOperator("(")) {
      expr = ParsePostfix(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::ParseSubscript(ExprPtr object) {
  if (TakeOperator(".")) {
    if (Now().kind == Kind::kInteger) {
      ExprPtr index = ParseNumber();
      return Binary(Expr::Kind::kSubscript, "", std::move(object), std::move(index));
    }
    ExprPtr expr = Make(Expr::Kind::kAttribute, Identifier());
    AddArg(*expr, std::move(object));
    return expr;
  }
  return ParseSubscriptIndex(std::move(object));
}

ExprPtr Parser::ParseSubscriptIndex(ExprPtr object) {
  ExpectOperator("[");
  ExprPtr parts[3];
  int count = 0;
  bool slice = false;
  for (;;) {
    if (!IsOperator(":") && !IsOperator("]")) parts[count] = ParseTuple();
    if (count == 2 || !TakeOperator(":")) break;
    slice = true;
    ++count;
  }
  ExpectOperator("]");
  if (!slice) {
    if (parts[0] == nullptr) Fail("an index is missing");
    return Binary(Expr::Kind::kSubscript, "", std::move(object), std::move(parts[0]));
  }
  ExprPtr expr = Make(Expr::Kind::kSlice);
  AddArg(*expr, std::move(object));
  for (ExprPtr& part : parts) AddArg(*expr, std::move(part));
  return expr;
}

void Parser::ParseArguments(Expr& call) {
  const Level level(this);
  ExpectOperator("(");
  while (!IsOperator(")") && status_.ok()) {
    if (IsOperator("*") || IsOperator("**")) Fail("argument unpacking is not supported");
    const bool named =
        Now().kind == Kind::kName && tokens_[at_ + 1].kind == Kind::kOperator && tokens_[at_ + 1].text == "=";
    if (named) {
      std::string name = Identifier();
      Next();
      ExprPtr value = ParseExpression();
      Raise(call, *value);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) Fail("a positional argument follows a named one");
      AddArg(call, ParseExpression());
    }
    if (!TakeOperator(",")) break;
  }
  ExpectOperator(")");
}

ExprPtr Parser::ParseFilter(ExprPtr input) {
  const std::string name = Identifier();
  if (status_.ok() && !IsFilter(name)) Fail("filter '" + name + "' is not supported");
  ExprPtr expr = Make(Expr::Kind::kFilter, name);
  AddArg(*expr, std::move(input));
  if (IsOperator("(")) ParseArguments(*expr);
  return expr;
}

ExprPtr Parser::ParseTest(ExprPtr input) {
  const bool negated = TakeName("not");
  const std::string name = Identifier();
  if (status_.ok() && !IsTest(name)) Fail("test '" + name + "' is not supported");
  ExprPtr expr = Make(Expr::Kind::kTest, name);
  AddArg(*expr, std::move(input));
  const bool argument = Now().kind == Kind::kName || Now().kind == Kind::kString || Now().kind == Kind::kInteger ||
                        Now().kind == Kind::kFloat || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    ParseArguments(*expr);
  } else if (argument && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) Fail("tests cannot be chained");
    AddArg(*expr, ParsePostfix(ParsePrimary()));
  }
  if (!negated) return expr;
  ExprPtr inverse = Make(Expr::Kind::kNot);
  AddArg(*inverse, std::move(expr));
  return inverse;
}

}  // namespace

StatusOr<Body> ParseTemplate(const std::string_view source) {
  StatusOr<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens.ok()) return tokens.status();
  return Parser(*std::move(tokens)).Run();
}

}  // namespace invar::models::jinja
