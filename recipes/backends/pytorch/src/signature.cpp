#include "signature.hpp"

#include <algorithm>
#include <charconv>

#include "backend_kit/error.hpp"

namespace torch_backend {
namespace {

using backend_kit::datatype_name;
using backend_kit::invalid_argument;

bool is_integer(DataType type) {
    switch (type) {
        case TRITONSERVER_TYPE_INT8:
        case TRITONSERVER_TYPE_INT16:
        case TRITONSERVER_TYPE_INT32:
        case TRITONSERVER_TYPE_INT64:
        case TRITONSERVER_TYPE_UINT8:
        case TRITONSERVER_TYPE_UINT16:
        case TRITONSERVER_TYPE_UINT32:
            return true;
        default:
            return false;
    }
}

bool is_real(DataType type) {
    return type == TRITONSERVER_TYPE_FP16 || type == TRITONSERVER_TYPE_BF16 || type == TRITONSERVER_TYPE_FP32 ||
           type == TRITONSERVER_TYPE_FP64;
}

std::string in_quotes(std::string_view name) {
    return "'" + std::string(name) + "'";
}

// Refuses a type that the argument cannot be made from.
void check_type(const Port& input, const Argument& argument, bool batched) {
    const auto refuse = [&](const char* needs) {
        throw invalid_argument("input " + in_quotes(input.name) + ": the argument " + in_quotes(argument.name) +
                               " of the model needs " + needs + ", the configuration says " +
                               std::string(datatype_name(input.type)));
    };
    if (is_number(argument.form) && batched) {
        throw invalid_argument("input " + in_quotes(input.name) + ": the argument " + in_quotes(argument.name) +
                               " of the model is a single number, which cannot be batched; set max_batch_size to 0");
    }
    switch (argument.form) {
        case Form::texts:
            if (input.type != TRITONSERVER_TYPE_BYTES) refuse("TYPE_STRING (List[str])");
            break;
        case Form::integer:
            if (!is_integer(input.type)) refuse("an integer type (int)");
            break;
        case Form::real:
            if (!is_real(input.type)) refuse("a floating-point type (float)");
            break;
        case Form::truth:
            if (input.type != TRITONSERVER_TYPE_BOOL) refuse("TYPE_BOOL (bool)");
            break;
        default:
            if (input.type == TRITONSERVER_TYPE_BYTES) refuse("a numeric type (Tensor)");
            break;
    }
}

class Placement {
public:
    Placement(const Signature& signature, std::span<const Port> inputs) : signature_(signature), inputs_(inputs) {
        places_.resize(inputs.size());
        for (std::size_t i = 0; i < signature.arguments.size(); ++i) {
            if (signature.arguments[i].form == Form::dictionary) dictionaries_.push_back(i);
            if (signature.arguments[i].form == Form::tensors) lists_.push_back(i);
        }
    }

    std::vector<Place> find() {
        std::vector<std::size_t> unplaced;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (const auto place = by_name(inputs_[i].name)) {
                places_[i] = *place;
            } else {
                unplaced.push_back(i);
            }
        }
        if (!unplaced.empty()) place_rest(unplaced);
        return std::move(places_);
    }

private:
    std::optional<std::size_t> argument(std::string_view name) const {
        for (std::size_t i = 0; i < signature_.arguments.size(); ++i) {
            if (!name.empty() && signature_.arguments[i].name == name) return i;
        }
        return std::nullopt;
    }

    std::optional<Place> by_name(std::string_view name) const {
        if (const auto found = argument(name)) {
            const Form form = signature_.arguments[*found].form;
            if (form != Form::dictionary) return Place{*found, 0};
        }
        const auto index = index_of(name);
        if (!index) return std::nullopt;
        const auto list = argument(name.substr(0, name.rfind("__")));
        if (list && signature_.arguments[*list].form == Form::tensors) return Place{*list, *index};
        if (signature_.arguments.size() == 1 && lists_.size() == 1) return Place{0, *index};
        if (signature_.arguments.size() == 1 && dictionaries_.size() == 1) return std::nullopt;
        if (*index >= signature_.arguments.size()) {
            throw invalid_argument("input " + in_quotes(name) + ": the model has " +
                                   std::to_string(signature_.arguments.size()) +
                                   " arguments, counted from 0: " + signature_.text);
        }
        return Place{*index, 0};
    }

    // Inputs whose names match nothing: keys of the dictionary, elements of the list, or arguments in order.
    void place_rest(const std::vector<std::size_t>& unplaced) {
        const bool all = unplaced.size() == inputs_.size();
        if (dictionaries_.size() == 1) {
            for (const std::size_t i : unplaced) places_[i] = Place{dictionaries_[0], 0};
        } else if (all && signature_.arguments.size() == 1 && lists_.size() == 1) {
            for (const std::size_t i : unplaced) places_[i] = Place{lists_[0], i};
        } else if (all && inputs_.size() <= signature_.arguments.size()) {
            for (const std::size_t i : unplaced) places_[i] = Place{i, 0};
        } else {
            throw invalid_argument("input " + in_quotes(inputs_[unplaced[0]].name) + " fits no argument of " +
                                   signature_.text +
                                   "; name each input after an argument, or INPUT__<position>, or leave all names free "
                                   "and keep the order");
        }
    }

    const Signature& signature_;
    std::span<const Port> inputs_;
    std::vector<Place> places_;
    std::vector<std::size_t> dictionaries_;
    std::vector<std::size_t> lists_;
};

// Checks the inputs of one argument: not two for a single value, and a list without gaps.
void check_argument(const Signature& signature, std::size_t index, const std::vector<const Port*>& ports,
                    std::vector<std::size_t> elements) {
    const Argument& argument = signature.arguments[index];
    if (ports.empty()) {
        if (argument.optional) return;
        throw invalid_argument("no input for the argument " + in_quotes(argument.name) + " of " + signature.text);
    }
    if (argument.form == Form::other) {
        throw invalid_argument("input " + in_quotes(ports[0]->name) + ": no request can carry the argument " +
                               in_quotes(argument.name) + " of " + signature.text);
    }
    if (argument.form == Form::dictionary) return;
    if (argument.form != Form::tensors) {
        if (ports.size() > 1) {
            throw invalid_argument("inputs " + in_quotes(ports[0]->name) + " and " + in_quotes(ports[1]->name) +
                                   " are the same argument of " + signature.text);
        }
        if (ports[0]->optional && !argument.optional) {
            throw invalid_argument("input " + in_quotes(ports[0]->name) +
                                   " is optional in the configuration, but the argument is not: " + signature.text);
        }
        return;
    }
    std::sort(elements.begin(), elements.end());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        if (elements[i] != i) {
            throw invalid_argument("the inputs of the list " + in_quotes(argument.name) + " must be numbered 0 to " +
                                   std::to_string(elements.size() - 1));
        }
    }
    for (const Port* port : ports) {
        if (port->optional && !(ports.size() == 1 && argument.optional)) {
            throw invalid_argument("input " + in_quotes(port->name) + ": an element of a list cannot be optional");
        }
    }
}

// Decides the picks of a model whose values are known before it runs.
void fix_picks(const Signature& signature, std::vector<Pick>& picks) {
    const auto& leaves = *signature.leaves;
    for (Pick& pick : picks) {
        const auto leaf =
            std::find_if(leaves.begin(), leaves.end(), [&](const Leaf& each) { return each.name == pick.name; });
        if (leaf == leaves.end()) continue;
        pick.index = static_cast<std::size_t>(leaf - leaves.begin());
        pick.fixed = true;
    }
    const bool ordered = in_order(picks, leaves.size());
    for (Pick& pick : picks) {
        if (!(pick.fixed || ordered) || pick.index >= leaves.size()) {
            throw invalid_argument("output " + in_quotes(pick.name) + " is none of the " + std::to_string(leaves.size()) +
                                   " values (counted from 0) that the model gives: " + signature.text +
                                   "; name each output after a value, or OUTPUT__<position>, or give all of them names "
                                   "of your own in the model's order");
        }
        pick.fixed = true;
        const auto& type = leaves[pick.index].type;
        const bool fits = type ? *type == pick.type : pick.type != TRITONSERVER_TYPE_BYTES;
        if (!fits) {
            throw invalid_argument("output " + in_quotes(pick.name) + ": the model gives " +
                                   (type ? std::string(datatype_name(*type)) : "a tensor of numbers") +
                                   ", the configuration says " + std::string(datatype_name(pick.type)));
        }
    }
}

}  // namespace

std::optional<std::size_t> index_of(std::string_view name) {
    const auto mark = name.rfind("__");
    if (mark == std::string_view::npos || mark + 2 == name.size()) return std::nullopt;
    std::size_t index = 0;
    const char* last = name.data() + name.size();
    const auto [end, status] = std::from_chars(name.data() + mark + 2, last, index);
    if (status != std::errc() || end != last) return std::nullopt;
    return index;
}

bool in_order(std::span<const Pick> picks, std::size_t values) {
    return picks.size() == values &&
           std::none_of(picks.begin(), picks.end(), [](const Pick& pick) { return pick.fixed; });
}

std::vector<Place> place_inputs(const Signature& signature, std::span<const Port> inputs, bool batched) {
    std::vector<Place> places = Placement(signature, inputs).find();
    for (std::size_t a = 0; a < signature.arguments.size(); ++a) {
        std::vector<const Port*> ports;
        std::vector<std::size_t> elements;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            if (places[i].argument != a) continue;
            ports.push_back(&inputs[i]);
            elements.push_back(places[i].element);
        }
        check_argument(signature, a, ports, std::move(elements));
        for (const Port* port : ports) check_type(*port, signature.arguments[a], batched);
    }
    return places;
}

std::vector<Pick> pick_outputs(const Signature& signature, std::span<const Port> outputs) {
    std::vector<Pick> picks;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto index = index_of(outputs[i].name);
        picks.push_back({outputs[i].name, index.value_or(i), index.has_value(), outputs[i].type});
    }
    if (signature.leaves) fix_picks(signature, picks);
    return picks;
}

}  // namespace torch_backend
