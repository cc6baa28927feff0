#include "effects.hpp"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace torch_backend {
namespace {

using c10::IValue;
using torch::jit::AliasDb;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace attr = c10::attr;
namespace prim = c10::prim;

void each_node(Block& block, const std::function<void(Node&)>& visit) {
    for (Node* node : block.nodes()) {
        visit(*node);
        for (Block* inner : node->blocks()) each_node(*inner, visit);
    }
}

// Whether code runs that is not part of the graph, or runs beside it.
bool is_opaque(const Node& node) {
    switch (node.kind()) {
        case prim::CallFunction:
        case prim::CallMethod:
        case prim::PythonOp:
        case prim::awaitable:
        case prim::fork:
        case prim::rpc_async:
        case prim::rpc_remote:
        case prim::rpc_sync:
            return true;
        default:
            return node.hasAttribute(attr::Subgraph);
    }
}

bool is_none(const Value* value) {
    const auto constant = torch::jit::toIValue(value);
    return value->type()->kind() == c10::TypeKind::NoneType || (constant && constant->isNone());
}

bool is_false(const Value* value) {
    const auto constant = torch::jit::toIValue(value);
    return constant && constant->isBool() && !constant->toBool();
}

// Normalization updates its statistics in training, which its schema does not say.
bool updates_statistics(const Node& node) {
    if (node.maybeSchema() == nullptr || !node.hasNamedInput("running_mean")) return false;
    if (is_none(node.namedInput("running_mean"))) return false;
    for (const char* flag : {"training", "train", "use_input_stats"}) {
        if (node.hasNamedInput(flag)) return !is_false(node.namedInput(flag));
    }
    return true;
}

// The places that switch gradients off and on: their only effect is on the thread.
bool is_gradient_scope(const Node& node) {
    if (node.kind() != prim::Enter && node.kind() != prim::Exit) return false;
    return node.input(0)->type()->repr_str().starts_with("__torch__.torch.autograd.");
}

bool is_scalar(const IValue& value) {
    return value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isString();
}

bool is_module(const IValue& value) {
    return value.isObject() && value.toObjectRef().type()->is_module();
}

// The memory of tensors in a value that are not attributes of a module: in lists and the like.
void add_contained(const IValue& value, Memories& contained) {
    if (is_module(value)) {
        for (const IValue& slot : value.toObjectRef().slots()) {
            if (!slot.isTensor()) add_contained(slot, contained);
        }
        return;
    }
    value.visit([&](const IValue& part) {
        if (part.isTensor()) contained.insert(memory_of(part.toTensor()));
        return false;
    });
}

void add_attributes(const IValue& module, Memories& attributes) {
    for (const IValue& slot : module.toObjectRef().slots()) {
        if (slot.isTensor()) attributes.insert(memory_of(slot.toTensor()));
        if (is_module(slot)) add_attributes(slot, attributes);
    }
}

// A copy of a method's graph in which each argument, and each tensor that the module holds, is a value that aliases no
// other. The alias analysis takes all of them for the same memory otherwise.
class Code {
public:
    Code(const torch::jit::Method& method, IValue self) : graph_(method.graph()->copy()), self_(std::move(self)) {
        torch::jit::Inline(*graph_);
        if (any(is_opaque)) return;
        fold();
        if (any(updates_statistics)) return;
        drop_gradient_scopes();
        separate();
        add_witnesses();
        aliases_.emplace(graph_);
    }

    // Nothing more is known when this is false.
    bool is_known() const { return aliases_.has_value(); }

    Effects effects(const Signature& signature) {
        Effects effects;
        each_node(*graph_->block(), [&](Node& node) { add_writes(node, effects); });
        Memories written;
        for (const auto& [memory, value] : tensors_) {
            if (!aliases_->hasWriters(value)) continue;
            written.insert(memory);
            effects.keeps_state = true;
        }
        for (std::size_t i = 0; i < arguments_.size(); ++i) {
            const bool kept = effects.keeps_state && (is_container(signature.arguments[i].form) ||
                                                      aliases_->mayContainAlias(arguments_[i], any_tensor_));
            effects.owned.push_back(kept || aliases_->hasWriters(arguments_[i]));
        }
        effects.read_only = read_only(written);
        return effects;
    }

private:
    bool any(const std::function<bool(const Node&)>& test) {
        bool found = false;
        each_node(*graph_->block(), [&](Node& node) { found = found || test(node); });
        return found;
    }

    // Calls back with each attribute that is read and that the code never replaces: the node and what it reads.
    void each_attribute(const std::function<void(Node&, const IValue&)>& visit) {
        std::set<std::string> replaced;
        each_node(*graph_->block(), [&](Node& node) {
            if (node.kind() == prim::SetAttr) replaced.insert(node.s(attr::name));
        });
        std::unordered_map<const Value*, IValue> modules{{graph_->inputs()[0], self_}};
        each_node(*graph_->block(), [&](Node& node) {
            if (node.kind() != prim::GetAttr) return;
            const auto owner = modules.find(node.input());
            const std::string& name = node.s(attr::name);
            if (owner == modules.end()) {
                unfollowed_ = true;
                return;
            }
            const IValue value = owner->second.toObjectRef().getAttr(name);
            if (replaced.contains(name)) {
                if (value.isTensor()) replaced_.insert(memory_of(value.toTensor()));
                return;
            }
            if (is_module(value)) modules.emplace(node.output(), value);
            visit(node, value);
        });
    }

    // Takes out what never runs: branches for training above all.
    void fold() {
        each_attribute([&](Node& node, const IValue& value) {
            if (!is_scalar(value)) return;
            const torch::jit::WithInsertPoint here(&node);
            node.output()->replaceAllUsesWith(graph_->insertConstant(value));
        });
        torch::jit::ConstantPropagationImmutableTypes(graph_);
    }

    void drop_gradient_scopes() {
        std::vector<Node*> scopes;
        each_node(*graph_->block(), [&](Node& node) {
            if (is_gradient_scope(node) && !node.hasUses()) scopes.push_back(&node);
        });
        for (Node* scope : scopes) scope->destroy();
    }

    // Any node would do whose result the analysis takes for new memory.
    Value* insert_separate(const c10::TypePtr& type) {
        Node* const node = graph_->create(prim::CreateObject, 1);
        node->output()->setType(type);
        return graph_->prependNode(node)->output();
    }

    void separate() {
        unfollowed_ = false;
        each_attribute([&](Node& node, const IValue& value) {
            if (!value.isTensor()) return;
            Value*& separate = tensors_[memory_of(value.toTensor())];
            if (separate == nullptr) separate = insert_separate(c10::TensorType::get());
            node.output()->replaceAllUsesWith(separate);
        });
        for (std::size_t i = 1; i < graph_->inputs().size(); ++i) {
            arguments_.push_back(insert_separate(graph_->inputs()[i]->type()));
            graph_->inputs()[i]->replaceAllUsesWith(arguments_.back());
        }
    }

    // Inputs of the graph stand for memory from outside: one of each type, to compare with.
    void add_witnesses() {
        std::map<std::string, c10::TypePtr> types;
        each_node(*graph_->block(), [&](Node& node) {
            for (const Value* input : node.inputs()) types.emplace(input->type()->repr_str(), input->type());
        });
        for (const auto& [name, type] : types) {
            Value* const witness = graph_->addInput();
            witness->setType(type);
            witnesses_.emplace(name, witness);
        }
        any_tensor_ = graph_->addInput();
        any_tensor_->setType(c10::TensorType::get());
    }

    // Notes what a node writes to that outlives the run.
    void add_writes(Node& node, Effects& effects) {
        if (!aliases_->isMutable(&node)) return;
        for (const Value* input : node.inputs()) {
            if (!aliases_->writesToAlias(&node, {input})) continue;
            const auto witness = witnesses_.find(input->type()->repr_str());
            if (witness == witnesses_.end() || !aliases_->mayAlias(input, witness->second)) continue;
            effects.keeps_state = true;
            const c10::TypeKind kind = input->type()->kind();
            writes_unknown_tensor_ = writes_unknown_tensor_ || (kind != c10::TypeKind::ListType &&
                                                                kind != c10::TypeKind::DictType &&
                                                                kind != c10::TypeKind::ClassType);
        }
    }

    // A tensor that is written to somewhere, and that is no attribute, may be one in any list of the module.
    Memories read_only(const Memories& written) const {
        Memories result;
        if (writes_unknown_tensor_ && unfollowed_) return result;
        add_attributes(self_, result);
        Memories contained;
        add_contained(self_, contained);
        if (writes_unknown_tensor_) {
            contained.insert(replaced_.begin(), replaced_.end());
            for (const void* memory : contained) result.erase(memory);
        } else {
            result.merge(contained);
        }
        for (const void* memory : written) result.erase(memory);
        return result;
    }

    std::shared_ptr<Graph> graph_;
    IValue self_;
    bool unfollowed_ = false;             // an attribute is read of an object that is not known
    bool writes_unknown_tensor_ = false;  // a tensor is written to that may have come from outside
    Memories replaced_;                   // what attributes hold that the code replaces
    std::unordered_map<const void*, Value*> tensors_;
    std::vector<Value*> arguments_;
    std::unordered_map<std::string, Value*> witnesses_;
    Value* any_tensor_ = nullptr;
    std::optional<AliasDb> aliases_;
};

}  // namespace

const void* memory_of(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return tensor.unsafeGetTensorImpl();
    return tensor.storage().unsafeGetStorageImpl();
}

Effects effects_of(const torch::jit::Module& module, const torch::jit::Method& method, const Signature& signature) {
    Code code(method, module._ivalue());
    if (code.is_known()) return code.effects(signature);
    return {.keeps_state = true, .owned = std::vector<bool>(signature.arguments.size(), true), .read_only = {}};
}

}  // namespace torch_backend
