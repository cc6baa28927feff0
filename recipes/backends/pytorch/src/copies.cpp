#include "copies.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>

#include <unordered_map>
#include <utility>

namespace torch_backend {
namespace {

using c10::IValue;

// IValue::deepcopy() of older versions takes views of the same memory for one and the same tensor.
class Copier {
public:
    explicit Copier(const Memories& shared) : shared_(shared) {}

    IValue copy(const IValue& value) {
        if (value.isTensor()) return tensor(value.toTensor());
        if (value.isList()) return once(value.internalToPointer(), [&] { return list(value); });
        if (value.isGenericDict()) return once(value.internalToPointer(), [&] { return dictionary(value); });
        if (value.isTuple()) return once(value.internalToPointer(), [&] { return tuple(value); });
        if (value.isObject() && !value.isCustomClass()) return object(value);
        return value.deepcopy();
    }

private:
    template <class Make>
    IValue once(const void* original, Make make) {
        const auto found = done_.find(original);
        if (found != done_.end()) return found->second;
        IValue made = make();
        done_.emplace(original, made);
        return made;
    }

    IValue tensor(const at::Tensor& original) {
        if (!original.defined() || shared_.contains(memory_of(original))) return original;
        return once(original.unsafeGetTensorImpl(), [&]() -> IValue { return tensor_copy(original); });
    }

    at::Tensor tensor_copy(const at::Tensor& original) {
        const bool plain = original.has_storage() && original.layout() == at::kStrided && !original.is_quantized() &&
                           !original.is_conj() && !original.is_neg();
        if (!plain) return original.detach().clone();
        at::Tensor& whole = memories_[memory_of(original)];
        if (!whole.defined()) whole = at::empty({0}, original.options()).set_(original.storage()).clone();
        if (whole.scalar_type() != original.scalar_type()) return original.detach().clone();
        return whole.as_strided(original.sizes(), original.strides(), original.storage_offset());
    }

    IValue list(const IValue& value) {
        c10::impl::GenericList result(value.toList().elementType());
        for (const IValue& each : value.toListRef()) result.push_back(copy(each));
        return result;
    }

    IValue dictionary(const IValue& value) {
        const auto original = value.toGenericDict();
        c10::impl::GenericDict result(original.keyType(), original.valueType());
        for (const auto& item : original) result.insert(item.key(), copy(item.value()));
        return result;
    }

    IValue tuple(const IValue& value) {
        std::vector<IValue> elements;
        for (const IValue& each : value.toTupleRef().elements()) elements.push_back(copy(each));
        const auto type = value.toTuple()->type();
        if (type->schema()) return c10::ivalue::Tuple::createNamed(std::move(elements), type);
        return c10::ivalue::Tuple::create(std::move(elements));
    }

    IValue object(const IValue& value) {
        const auto original = value.toObject();
        const auto found = done_.find(original.get());
        if (found != done_.end()) return found->second;
        c10::StrongTypePtr type(original->compilation_unit(), original->type());
        const auto result = c10::ivalue::Object::create(std::move(type), original->slots().size());
        done_.emplace(original.get(), result);  // first, since an object may hold itself
        for (std::size_t i = 0; i < original->slots().size(); ++i) result->setSlot(i, copy(original->getSlot(i)));
        return result;
    }

    const Memories& shared_;
    std::unordered_map<const void*, IValue> done_;          // by the address of the original
    std::unordered_map<const void*, at::Tensor> memories_;  // copies of whole memories, in one dimension
};

}  // namespace

c10::IValue copy_of(const c10::IValue& module, const Memories& shared) {
    return Copier(shared).copy(module);
}

}  // namespace torch_backend
